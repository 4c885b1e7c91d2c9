#include "tern/data/formats/png_chunks.h"

#include "tern/data/formats/load_bytes.h"

namespace tern {

std::optional<PngChunk> PngChunks::next() {
  constexpr size_t kFrame = 12;  // length, type and CRC, 4 bytes each
  if (is_complete_ || offset_ > bytes_.size() ||
      bytes_.size() - offset_ < kFrame) {
    return std::nullopt;
  }
  const uint8_t* chunk = bytes_.data() + offset_;
  const size_t length = load_be32(chunk);
  if (length > bytes_.size() - offset_ - kFrame) {
    return std::nullopt;
  }
  offset_ += kFrame + length;
  const uint32_t type = load_be32(chunk + 4);
  is_complete_ = type == png_type("IEND");
  return PngChunk{
      type,
      {chunk + 8, length},
      {chunk + 4, length + 4},
      load_be32(chunk + 8 + length)};
}

}  // namespace tern
