#pragma once

#include <cstdint>

namespace tern {

/// Rows and columns of an image that are painted over.
struct PaintedRectangle {
  int32_t top = 0, left = 0, bottom = 0, right = 0;
  uint32_t noise_key = 0;
  /// Random bytes instead of `value`.
  bool noise = false;
  uint8_t value = 0;
};

}  // namespace tern
