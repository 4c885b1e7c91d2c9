#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tern {

/// A file in one of Netpbm's binary formats: P5 is gray (PGM), P6 is color
/// (PPM). A view of its bytes.
struct PnmFile {
  int64_t width = 0, height = 0;
  int channels = 1;
  /// 1, or 2 with the more significant byte first.
  int64_t bytes_per_value = 1;
  /// [height, width, channels], and all data after it.
  std::span<const uint8_t> pixels = {};
};

/// True if the file begins like P5 or P6.
bool is_pnm(std::span<const uint8_t> bytes);

/// \param path  File name for error messages.
/// \throws DataError if the header is damaged, the maximum value is neither 255
///         nor 65535, or there are fewer pixels than the header declares.
///
/// Source: netpbm.sourceforge.net/doc/pgm.html, ppm.html.
PnmFile parse_pnm(std::span<const uint8_t> bytes, std::string_view path);

}  // namespace tern
