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

/// Resizes [from.height, from.width, channels] to [to.height, to.width,
/// channels]: linearly, or by area when `by_area` and it shrinks to less than
/// half.
void resize_image(
    const uint8_t* pixels,
    ImageSize from,
    int64_t channels,
    bool by_area,
    ImageSize to,
    uint8_t* resized);

/// Turns an image upright.
/// \param orientation  1..8, as in EXIF.
/// \param from         Size before turning; 5 to 8 swap height and width.
void turn_upright(
    const uint8_t* pixels,
    ImageSize from,
    int64_t channels,
    int orientation,
    uint8_t* upright);

}  // namespace tern
