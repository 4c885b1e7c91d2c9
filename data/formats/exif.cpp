#include "tern/data/formats/exif.h"

#include <algorithm>

#include "tern/data/formats/load_bytes.h"

namespace tern {
namespace {

constexpr size_t kHeaderBytes = 8;
constexpr size_t kEntryBytes = 12;

}  // namespace

uint32_t TiffTags::load16(size_t offset) const {
  const uint8_t* at = bytes_.data() + offset;
  return big_endian_ ? load_be16(at) : load_le16(at);
}

uint32_t TiffTags::load32(size_t offset) const {
  const uint8_t* at = bytes_.data() + offset;
  return big_endian_ ? load_be32(at) : load_le32(at);
}

std::optional<TiffTags> TiffTags::parse(std::span<const uint8_t> bytes) {
  if (bytes.size() < kHeaderBytes || bytes[0] != bytes[1] ||
      (bytes[0] != 'I' && bytes[0] != 'M')) {
    return std::nullopt;
  }
  TiffTags tags(bytes, bytes[0] == 'M');
  if (tags.load16(2) != 42) {
    return std::nullopt;
  }
  const size_t directory = tags.load32(4);
  if (directory < kHeaderBytes || directory > bytes.size() ||
      bytes.size() - directory < 2) {
    return tags;
  }
  tags.entries_ = directory + 2;
  tags.count_ = std::min<size_t>(
      tags.load16(directory),
      (bytes.size() - tags.entries_) / kEntryBytes);
  return tags;
}

std::optional<uint32_t> TiffTags::value(uint16_t tag) const {
  for (size_t i = 0; i < count_; ++i) {
    const size_t entry = entries_ + i * kEntryBytes;
    if (load16(entry) != tag) {
      continue;
    }
    const uint32_t type = load16(entry + 2);  // 1 BYTE, 3 SHORT, 4 LONG
    const uint64_t size = type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
    const uint64_t total = size * load32(entry + 4);
    if (total == 0) {
      return std::nullopt;
    }
    // Up to four bytes stand in the entry itself, more somewhere else.
    const size_t at = total <= 4 ? entry + 8 : load32(entry + 8);
    if (at > bytes_.size() || bytes_.size() - at < size) {
      return std::nullopt;
    }
    return size == 1 ? bytes_[at] : size == 2 ? load16(at) : load32(at);
  }
  return std::nullopt;
}

int exif_orientation(std::span<const uint8_t> bytes) {
  const std::optional<TiffTags> tags = TiffTags::parse(bytes);
  const uint32_t orientation =
      tags ? tags->value(TiffTags::kOrientation).value_or(1) : 1;
  return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation)
                                              : 1;
}

}  // namespace tern
