// A build without Gloo has only one process.
#include <torch/types.h>

#include "tern/learner/distributed/launch_environment.h"
#include "tern/learner/learner.h"

namespace tern {

Learner& Learner::to_distributed() {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !LaunchEnvironment::read().is_distributed(),
      "[Learner::to_distributed] this build of Tern supports a single process "
      "only; install the headers of Gloo (libgloo-dev) and build with "
      "TERN_DISTRIBUTED=ON.");
  return *this;
}

}  // namespace tern
