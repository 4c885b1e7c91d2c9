#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tern {

/// How a PNG stores its pixels.
struct PngPixels {
  enum class Colour { grey, rgb, palette, grey_alpha, rgb_alpha };

  Colour colour = Colour::grey;
  /// Bits of one sample: 1, 2, 4, 8 or 16.
  int bit_depth = 8;
  /// RGB, RGB, ...; what is missing is black.
  std::array<uint8_t, 256 * 3> palette{};
  size_t palette_size = 0;

  int64_t samples() const {
    constexpr int64_t kSamples[] = {1, 3, 1, 2, 4};
    return kSamples[static_cast<int>(colour)];
  }
  /// Bytes of a row of `width` pixels, without its filter byte.
  size_t row_bytes(int64_t width) const {
    return static_cast<size_t>((width * samples() * bit_depth + 7) / 8);
  }
  /// How far filters look to the left.
  size_t bytes_per_pixel() const {
    return static_cast<size_t>((samples() * bit_depth + 7) / 8);
  }

  /// Writes a row of pixels as 8-bit grey or RGB.
  /// \param row       row_bytes(width) bytes, filters undone.
  /// \param channels  1 or 3.
  /// \param out       Where the first pixel goes; each next one `step` bytes
  ///                  on.
  void write_row(
      const uint8_t* row,
      int64_t width,
      int64_t channels,
      uint8_t* out,
      int64_t step) const;
};

/// Undoes the filter of a row in place.
/// \param above            The row before, filters undone; null for the first.
/// \param bytes_per_pixel  1, 2, 3, 4, 6 or 8.
/// \return  False if there is no such filter.
bool undo_png_filter(
    uint8_t filter,
    uint8_t* row,
    const uint8_t* above,
    size_t row_bytes,
    size_t bytes_per_pixel);

}  // namespace tern
