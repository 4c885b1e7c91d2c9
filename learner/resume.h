#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/learner/checkpoint.h"
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

/// What `Learner::resume` has read and the coming fits have not used yet.
/// Private to learner/.
struct ResumePlan {
  Checkpoint checkpoint;
  int64_t fits_to_skip = 0;  // they were complete when it was written
  bool allow_change = false;
  bool is_applied = false;  // the Learner is where the checkpoint was made
};

}  // namespace tern
