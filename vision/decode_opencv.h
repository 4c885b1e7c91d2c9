#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tern/data/formats/image_header.h"
#include "tern/vision/image_size.h"

namespace tern {

/// Decodes a WebP, BMP or TIFF with OpenCV, not turned upright.
///
/// \param header    Of `bytes`.
/// \param channels  1 or 3 (RGB).
/// \param pixels    [header.height, header.width, channels].
/// \throws DataError for whatever OpenCV answers with an exception or with an
///         empty image.
void decode_opencv(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    int64_t channels,
    uint8_t* pixels);

}  // namespace tern
