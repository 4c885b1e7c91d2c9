#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tern/data/formats/image_header.h"
#include "tern/vision/image_size.h"

namespace tern {

/// The smallest size, by 1/1, 1/2, 1/4 or 1/8, in which libjpeg-turbo can
/// decode an image of size `stored` and that is no smaller than `wanted`.
ImageSize jpeg_scaled_size(ImageSize stored, ImageSize wanted);

/// Decodes a JPEG with libjpeg-turbo, not turned upright.
/// \param size    From `jpeg_scaled_size`.
/// \param pixels  [size.height, size.width, channels], channels 1 or 3.
/// \throws DataError if the file is cut or damaged and not `lenient`.
void decode_jpeg(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    ImageSize size,
    int64_t channels,
    bool lenient,
    uint8_t* pixels);

}  // namespace tern
