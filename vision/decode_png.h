#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tern/data/formats/image_header.h"

namespace tern {

/// Decodes a PNG of any kind: 1 to 16 bits, grey, colour, palette, alpha
/// (dropped), interlaced.
///
/// \param header    Of `bytes`, from `read_image_header`.
/// \param channels  1 or 3.
/// \param indices   Gives the number that is stored, not the colour or the
///                  brightness that it stands for; with channels 1 and at most
///                  8 bits.
/// \param pixels    [header.height, header.width, channels].
/// \throws DataError if the file is cut, a checksum is wrong or it breaks the
///         format in another way.
///
/// Inflates with libdeflate. About three times as fast as cv::imdecode on a
/// small image, because no decoder is built up and torn down, and silent where
/// libpng writes to stderr. Source: PNG specification, third edition.
void decode_png(
    std::span<const uint8_t> bytes,
    std::string_view path,
    const ImageHeader& header,
    int64_t channels,
    bool indices,
    uint8_t* pixels);

}  // namespace tern
