#pragma once

#include "tern/learner/checkpoint.h"

namespace tern {

class Learner;

/// Whether the fit that begins goes on from a checkpoint: logs are added to
/// then.
bool is_resuming(const Learner& learner);

/// What `Learner::resume` has read and the coming fits have not used yet.
/// Private to learner/.
struct ResumePlan {
  Checkpoint checkpoint;
  int64_t fits_to_skip = 0;  // they were complete when it was written
  bool allow_change = false;
};

}  // namespace tern
