#pragma once

#include <cstdint>

#include "tern/kernels/matrix3.h"
#include "tern/kernels/padding.h"

namespace tern {

/// How pixels between pixels are made.
enum class Sampling { bilinear, nearest };

/// A rectangle of 8-bit pixels, [height, width, channels], in somebody's
/// memory.
struct PixelView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0, channels = 3;
  /// Bytes from one row to the next.
  int64_t stride = 0;
  /// One past the last byte that may be read.
  const uint8_t* end = nullptr;
};

/// Which pixel of the source each pixel of the result shows.
struct Warp {
  /// From the result to the source. The pixel in row y and column x has its
  /// centre at (x + 0.5, y + 0.5).
  Matrix3 matrix = {};
  Padding padding = Padding::reflection;
  Sampling sampling = Sampling::bilinear;
  /// Every point is moved by up to so many pixels of the source, at random.
  float jitter_x = 0, jitter_y = 0;
  /// Key of that randomness.
  uint32_t jitter_key = 0;
};

/// Samples `source` once.
///
/// \param out  [height, width, source.channels] to fill, contiguous.
///
/// Bilinear weights have 8 bits, so a value differs by at most 1 from
/// `torch.nn.functional.grid_sample(align_corners=False)` where neighbours
/// differ by less than 128, by at most 2 otherwise. Does not smooth: a source
/// that is much larger than the result goes through `shrink_by_area` first.
void warp_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out);

/// Averages blocks of `down` x `across` pixels; those at the lower and the
/// right edge may be smaller. \param out  [ceil(height / down), ceil(width /
/// across), channels].
void shrink_by_area(
    const PixelView& source,
    int64_t down,
    int64_t across,
    uint8_t* out);

/// The random shift of the pixel in row y and column x, in -1..1 along x and y.
std::pair<float, float> warp_jitter(uint32_t key, int64_t y, int64_t x);

}  // namespace tern
