#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/fused_optimizer_launch.h"
#include "tern/kernels/fused_optimizer_math.h"

namespace tern {

/// Elements [begin, end) of one tensor; the gradient is divided by
/// `grad_scale`.
struct FusedOptimizerLoops {
  void (*sgd)(
      const SgdTensor& tensor,
      const SgdStep& step,
      float grad_scale,
      int64_t begin,
      int64_t end);
  void (*adam)(
      const AdamTensor& tensor,
      const AdamStep& step,
      float grad_scale,
      int64_t begin,
      int64_t end);
};

TERN_DECLARE_LOOPS(FusedOptimizerLoops, fused_optimizer_loops)

}  // namespace tern
