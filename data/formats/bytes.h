#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tern {

/// Reinterprets bytes in memory as numbers or as text, without a copy.
inline std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Loads unsigned integers from memory, big-endian (be) or little-endian (le).
/// The caller must check the bounds.
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
