#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/state_dict.h"

namespace tern {

class Callback;
class Learner;

/// Returns this callback's log_state in the checkpoint from which the running
/// fit was resumed. The first call returns it; later calls, or a call for a
/// checkpoint without it, return an empty state. Unset if the fit was not
/// resumed.
std::optional<StateDict> take_resumed_log(
    Learner& learner,
    const Callback& callback);

/// Captures the whole state of this Learner. If a checkpoint was resumed and no
/// fit has reached it yet, returns that checkpoint.
Checkpoint capture_checkpoint(Learner& learner);

/// Like `capture_checkpoint` on several ranks, with one run id for all of them.
/// Called by all ranks. Does not write the checkpoint.
/// \param before  Called first.
/// \return the checkpoint, on rank 0; do not use the result on other ranks.
/// \throws on all ranks if `before` or the capture throws on one of them.
Checkpoint capture_on_all_ranks(
    Learner& learner,
    c10::function_ref<void()> before);

/// Returns the step from which training continues, even if the resumed fit has
/// not begun yet.
int64_t step_to_continue(const Learner& learner);

/// Logs which checkpoints a save has renamed, and how to return to them.
void tell_put_aside(
    const Learner& learner,
    const std::vector<std::filesystem::path>& aside);

/// True if the Learner was resumed and the program's fits have not reached the
/// checkpoint yet: its weights are then newer than the program's position.
bool is_ahead_of_program(const Learner& learner);

/// Returns the id of this run in its checkpoints, which stays the same on
/// resume.
const std::string& run_id(Learner& learner);

}  // namespace tern
