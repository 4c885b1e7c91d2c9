#pragma once

#include <optional>
#include <string>

#include <torch/types.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/state_dict.h"

namespace tern {

class Callback;
class Learner;

/// The `log_state` of this callback when the checkpoint was made that the
/// training goes on from. It is given once, then and for checkpoints that have
/// none it is empty: the log is added to. Nothing if this is no resumed fit.
std::optional<StateDict> take_resumed_log(
    Learner& learner,
    const Callback& callback);

/// Everything of this Learner as a checkpoint; that of the training it goes on
/// from while no fit has used it yet.
Checkpoint capture_checkpoint(Learner& learner);

/// Names this training in its checkpoints, over all continuations.
const std::string& run_id(Learner& learner);

}  // namespace tern
