#include "tern/kernels/warp_image.h"

#include "tern/kernels/element_math.h"

namespace tern {

void warp_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out) {
  TERN_SELECT_LOOPS(warp_loops).warp(source, warp, height, width, out);
}

void shrink_by_area(
    const PixelView& source,
    int64_t down,
    int64_t across,
    uint8_t* out) {
  TERN_SELECT_LOOPS(warp_loops).shrink(source, down, across, out);
}

std::pair<float, float> warp_jitter(uint32_t key, int64_t y, int64_t x) {
  const uint32_t bits =
      hash_of(key, static_cast<uint32_t>(y), static_cast<uint32_t>(x));
  return {jitter_of(bits), jitter_of(bits >> 16)};
}

}  // namespace tern
