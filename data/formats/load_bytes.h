#pragma once

#include <cstdint>

namespace tern {

/// Unsigned integers from bytes in memory, big-endian (be) or little-endian
/// (le). The caller has checked that the bytes are there.
inline uint16_t load_be16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]);
}
inline uint16_t load_le16(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[1] << 8 | bytes[0]);
}
inline uint32_t load_be32(const uint8_t* bytes) {
  return static_cast<uint32_t>(load_be16(bytes)) << 16 | load_be16(bytes + 2);
}
inline uint32_t load_le32(const uint8_t* bytes) {
  return static_cast<uint32_t>(load_le16(bytes + 2)) << 16 | load_le16(bytes);
}
inline uint64_t load_le64(const uint8_t* bytes) {
  return static_cast<uint64_t>(load_le32(bytes + 4)) << 32 | load_le32(bytes);
}

}  // namespace tern
