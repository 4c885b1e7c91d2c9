#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tern {

/// An 8-bit grey or RGB image as a PNG file.
///
/// \param pixels    [height, width, channels], row by row.
/// \param channels  1 (grey) or 3 (RGB).
/// \throws std::invalid_argument if the sizes do not agree.
std::vector<uint8_t> encode_png(
    std::span<const uint8_t> pixels,
    int64_t width,
    int64_t height,
    int64_t channels);

}  // namespace tern
