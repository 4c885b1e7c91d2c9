#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tern/data/formats/image_header.h"
#include "tern/vision/image_size.h"
#include "tern/vision/scratch_buffer.h"

namespace tern {

/// The size of an image of size `stored` when it is decoded at 1/`denominator`.
ImageSize jpeg_scaled_size(ImageSize stored, int denominator);

/// Decodes a part of a JPEG with libjpeg-turbo, not turned upright.
///
/// \param denominator  1, 2, 4 or 8: decodes at that part of the size, which is
///                     faster and smooths.
/// \param wanted       In pixels of the scaled image, inside of it.
/// \param channels     1 or 3.
/// \param buffer       Gets [height, width, channels] of the returned part.
/// \return  What was decoded: `wanted`, wider by up to a block on each side.
/// \throws DataError if the file is cut, or is damaged where it is decoded, and
///         not `lenient`.
///
/// Rows above `wanted` are only parsed and columns beside it not transformed;
/// rows below are not even parsed, but for the file's end marker.
ImageRegion decode_jpeg_region(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    int denominator,
    ImageRegion wanted,
    int64_t channels,
    bool lenient,
    ScratchBuffer& buffer);

/// The whole of it in its own size.
/// \param pixels  [header.height, header.width, channels].
void decode_jpeg(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    int64_t channels,
    bool lenient,
    uint8_t* pixels);

}  // namespace tern
