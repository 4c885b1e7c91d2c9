#pragma once

#include <optional>
#include <string>

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

/// Whether the Learner was resumed, and the program's fits have not come to the
/// checkpoint yet: its weights are of a later moment than the program thinks.
bool is_ahead_of_program(const Learner& learner);

/// Names this training in its checkpoints, over all continuations.
const std::string& run_id(Learner& learner);

}  // namespace tern
