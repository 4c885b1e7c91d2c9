#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/warp.h"

namespace tern {

struct WarpLoops {
  void (*warp)(
      const PixelView& source,
      const Warp& warp,
      int64_t height,
      int64_t width,
      uint8_t* out);
  void (*shrink)(
      const PixelView& source,
      int64_t down,
      int64_t across,
      uint8_t* out);
};

TERN_DECLARE_LOOPS(WarpLoops, warp_loops)

}  // namespace tern
