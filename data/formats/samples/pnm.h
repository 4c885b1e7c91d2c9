#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tern {

/// A file in one of the binary formats of Netpbm: P5 is gray (PGM), P6 has
/// colors (PPM). A view of its bytes.
struct PnmFile {
  int64_t width = 0, height = 0;
  int channels = 1;
  /// Of a value: 1, or 2, the more significant first.
  int64_t bytes_per_value = 1;
  /// [height, width, channels], and whatever follows it.
  std::span<const uint8_t> pixels = {};
};

/// Whether a file begins as one of them.
bool is_pnm(std::span<const uint8_t> bytes);

/// \param path  Its name, for error messages.
/// \throws DataError if the header is damaged, white is neither 255 nor 65535, or
///         there are fewer pixels than it says.
/// Source: netpbm.sourceforge.net/doc/pgm.html, ppm.html.
PnmFile parse_pnm(std::span<const uint8_t> bytes, std::string_view path);

}  // namespace tern
