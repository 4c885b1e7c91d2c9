#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/element_type.h"

namespace tern {

struct UnscaleLoops {
  /// Whether an infinity or a NaN is among the elements.
  bool (*has_non_finite)(const void* data, ElementType type, int64_t size);
  /// The same, and multiplies them all by `inv_scale`.
  bool (*unscale_and_check)(
      void* data,
      ElementType type,
      int64_t size,
      float inv_scale);
};

TERN_DECLARE_LOOPS(UnscaleLoops, unscale_loops)

}  // namespace tern
