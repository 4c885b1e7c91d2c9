#pragma once

#include <cstdint>

#include "tern/kernels/images/warp_image.h"

namespace tern {

/// True if a warp is bilinear and only resizes, crops, flips and transposes,
/// which is what `resize_image` supports.
bool only_resizes(const Warp& warp);

/// Resizes like Pillow's `Image.resize(size, BILINEAR)`, with a difference of
/// at most 1. Each result pixel is a mean of source pixels, weighted by a
/// triangle that is two result pixels wide, or two source pixels if the image
/// is enlarged. At the edges the weights inside the source are renormalized, so
/// that edges do not fade.
///
/// \param warp  Must satisfy `only_resizes`. Its padding fills the area outside
///              the resized image.
/// \param out   [height, width, source.channels] to fill, contiguous.
void resize_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out);

}  // namespace tern
