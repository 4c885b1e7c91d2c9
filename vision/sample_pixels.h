#pragma once

#include "tern/kernels/warp_image.h"
#include "tern/vision/image_size.h"

namespace tern {

/// `warp_image` for a source of any size: one that is seen at half its size or
/// less is averaged first, down and across each by a whole number, unless
/// pixels are picked (`Sampling::nearest`).
/// \param out  [size.height, size.width, source.channels].
void sample_pixels(
    const PixelView& source,
    const Warp& warp,
    ImageSize size,
    uint8_t* out);

}  // namespace tern
