#pragma once

#include "tern/kernels/warp_image.h"
#include "tern/vision/image_size.h"

namespace tern {

/// How many pixels of the source, down and across, one pixel of the result
/// stands for where it stands for the fewest; whole numbers, at least 1.
ImageSize shrink_factors(const Matrix3& matrix, ImageSize result);

/// The part of a source of `size` that a warp reads, its neighbours included;
/// never empty.
ImageRegion seen_region(const Warp& warp, ImageSize result, ImageSize size);

/// A warp of an image that was averaged in blocks and then cut: its matrix
/// leads to the pixels of what is left.
/// \param factors  Height and width of the blocks.
/// \param offset   The part that is left, in blocks.
Warp shrunk(const Warp& warp, ImageSize factors, ImageRegion offset);

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
