#pragma once

#include "tern/kernels/images/resize_image.h"
#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// True if a warp must be applied with `resize_image`: it has `antialias` set
/// and only resizes.
inline bool is_antialiased(const Warp& warp) {
  return warp.antialias && only_resizes(warp);
}

/// Returns, for height and width, the smallest number of source pixels that any
/// result pixel covers, rounded down; at least 1.
ImageSize shrink_factors(const Matrix3& matrix, ImageSize result);

/// Returns the part of a source of `size` that a warp reads, including
/// neighboring pixels; never empty.
ImageRegion seen_region(const Warp& warp, ImageSize result, ImageSize size);

/// Adapts a warp to an image that was averaged in blocks and then cropped.
/// \param factors  Height and width of the blocks.
/// \param offset   The part that the crop kept, in blocks.
Warp shrunk(const Warp& warp, ImageSize factors, ImageRegion offset);

/// Returns a view of contiguous pixels of an image of `size`.
/// \param end  One past the last byte that may be read.
inline PixelView view_of(
    const uint8_t* pixels,
    ImageSize size,
    int64_t channels,
    const uint8_t* end) {
  const auto [height, width] = size;
  return {pixels, height, width, channels, width * channels, end};
}

/// Applies a warp to a source of any size: with `resize_image` for a warp with
/// `antialias` that only resizes, otherwise with `warp_image`. Before
/// `warp_image`, a source that shrinks to half or less is averaged by integer
/// factors, except with `Sampling::nearest`.
/// \param out  [size.height, size.width, source.channels].
void sample_pixels(
    const PixelView& source,
    const Warp& warp,
    ImageSize size,
    uint8_t* out);

}  // namespace tern
