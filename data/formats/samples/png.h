#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "tern/data/formats/bytes.h"

namespace tern {

/// The first eight bytes of every PNG.
inline constexpr std::array<uint8_t, 8> kPngSignature =
    {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

/// Returns the type of a PNG chunk as one number: `png_type("IDAT")`.
constexpr uint32_t png_type(const char (&name)[5]) {
  uint32_t type = 0;
  for (int i = 0; i < 4; ++i) {
    type = type << 8 | static_cast<uint8_t>(name[i]);
  }
  return type;
}

/// Returns the number of values per pixel for a color type of IHDR: gray, RGB,
/// palette, gray with alpha, RGBA. 0 for an invalid type.
constexpr int png_channels(uint8_t color_type) {
  constexpr int kChannels[] = {1, 0, 3, 1, 2, 0, 4};
  return color_type < std::size(kChannels) ? kChannels[color_type] : 0;
}

struct PngChunk {
  uint32_t type;
  std::span<const uint8_t> data;
  /// Bytes covered by the checksum: type and data.
  std::span<const uint8_t> checked;
  /// CRC-32 stored in the file.
  uint32_t crc;

  /// True if a decoder must understand this chunk to show the image.
  bool is_critical() const { return (type & 0x20000000) == 0; }
};

/// Iterates over the chunks of a PNG.
///
///   PngChunks chunks(bytes);
///   while (std::optional<PngChunk> chunk = chunks.next()) { ... }
///   chunks.is_complete();   // false: the file ends too early
class PngChunks {
 public:
  /// \param bytes  A whole file, starting with the signature.
  explicit PngChunks(std::span<const uint8_t> bytes)
      : bytes_(bytes), offset_(kPngSignature.size()) {}

  /// Returns the next chunk, up to and including IEND; nothing after IEND, or
  /// if the file ends within a chunk.
  std::optional<PngChunk> next() {
    constexpr size_t kFrame = 12;  // length, type and CRC, 4 bytes each
    if (is_complete_ || offset_ > bytes_.size() ||
        bytes_.size() - offset_ < kFrame) {
      return std::nullopt;
    }
    const uint8_t* chunk = bytes_.data() + offset_;
    const size_t length = load_be32(chunk);
    if (length > bytes_.size() - offset_ - kFrame) return std::nullopt;
    offset_ += kFrame + length;
    const uint32_t type = load_be32(chunk + 4);
    is_complete_ = type == png_type("IEND");
    return PngChunk{
        type,
        {chunk + 8, length},
        {chunk + 4, length + 4},
        load_be32(chunk + 8 + length)};
  }

  /// After `next` returned nothing: true if IEND was found.
  bool is_complete() const { return is_complete_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t offset_;
  bool is_complete_ = false;
};

/// Encodes an 8-bit gray or RGB image as a PNG file.
///
/// \param pixels    [height, width, channels], row by row.
/// \param channels  1 (gray) or 3 (RGB).
/// \throws std::invalid_argument if the sizes do not match.
std::vector<uint8_t> encode_png(
    std::span<const uint8_t> pixels,
    int64_t width,
    int64_t height,
    int64_t channels);

}  // namespace tern
