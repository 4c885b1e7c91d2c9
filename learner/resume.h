#pragma once

#include "tern/learner/checkpoint.h"

namespace tern {

/// What `Learner::resume` has read and the coming fits have not used yet.
/// Private to learner/.
struct ResumePlan {
  Checkpoint checkpoint;
  int64_t fits_to_skip = 0;  // they were complete when it was written
  bool allow_change = false;
};

}  // namespace tern
