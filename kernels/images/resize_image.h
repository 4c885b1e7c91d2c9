#pragma once

#include <cstdint>

#include "tern/kernels/images/warp_image.h"

namespace tern {

/// Whether a warp only resizes, crops, flips and transposes, and is bilinear:
/// what `resize_image` can do.
bool only_resizes(const Warp& warp);

/// Resizes as Pillow's `Image.resize(size, BILINEAR)`, to within 1: a pixel of
/// the result is the weighted mean of all that it covers, by a triangle as wide
/// as two of them, or as two of the source's if it is enlarged. Where weights
/// end beyond the source the rest is weighed, so that edges do not fade.
///
/// \param warp  For which `only_resizes`. Padding is what is outside of the
///              resized image.
/// \param out   [height, width, source.channels] to fill, contiguous.
void resize_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out);

}  // namespace tern
