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

/// Returns this callback's log_state from the checkpoint that the running fit
/// was resumed from: once, and empty afterwards or if the checkpoint has none.
/// Nothing if the fit was not resumed.
std::optional<StateDict> take_resumed_log(
    Learner& learner,
    const Callback& callback);

/// Everything of this Learner as a checkpoint; that of the training it goes on
/// from while no fit has used it yet.
Checkpoint capture_checkpoint(Learner& learner);

/// The same on several ranks, with one run for all of them: every rank calls it,
/// and rank 0 gets the checkpoint, to write it.
/// \param before  Called first.
/// \throws on all ranks what `before` or the capture throws on one.
Checkpoint capture_on_all_ranks(
    Learner& learner,
    c10::function_ref<void()> before);

/// The step that the training goes on from, also before the fit that a resumed
/// one goes on with has begun.
int64_t step_to_continue(const Learner& learner);

/// Says which checkpoints a save has put aside, and how to go back to them.
void tell_put_aside(
    const Learner& learner,
    const std::vector<std::filesystem::path>& aside);

/// Whether the Learner was resumed, and the program's fits have not come to the
/// checkpoint yet: its weights are of a later moment than the program thinks.
bool is_ahead_of_program(const Learner& learner);

/// Names this training in its checkpoints, over all continuations.
const std::string& run_id(Learner& learner);

}  // namespace tern
