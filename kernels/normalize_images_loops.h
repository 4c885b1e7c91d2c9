#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/element_type.h"

namespace tern {

/// Scale and offset written out for `size` elements in a row, a multiple of
/// the channels, so that a vector of elements meets a vector of each.
struct NormalizePattern {
  const float *scale, *offset;
  int64_t size;
};

struct NormalizeLoops {
  /// `images` begins at channel 0.
  void (*normalize)(
      const uint8_t* images,
      void* out,
      ElementType out_type,
      int64_t size,
      const NormalizePattern& pattern);
};

TERN_DECLARE_LOOPS(NormalizeLoops, normalize_loops)

}  // namespace tern
