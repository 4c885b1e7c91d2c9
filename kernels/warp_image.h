#pragma once

#include <cstdint>
#include <utility>

#include "tern/kernels/warp.h"

namespace tern {

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
