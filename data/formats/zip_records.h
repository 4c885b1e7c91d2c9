#pragma once

#include <cstdint>

namespace tern {

/// The records of a zip archive: a header before each entry, a table of
/// contents with a row for each, and the end. Source: PKWARE's APPNOTE.TXT,
/// sections 4.3 to 4.5.
namespace zip {

inline constexpr uint32_t kHeaderSignature = 0x04034b50;
inline constexpr uint32_t kRowSignature = 0x02014b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocatorSignature = 0x07064b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;

/// Sizes without names, extra fields and comments.
inline constexpr uint64_t kHeaderBytes = 30;
inline constexpr uint64_t kRowBytes = 46;
inline constexpr uint64_t kEnd64Bytes = 56;
inline constexpr uint64_t kLocatorBytes = 20;
inline constexpr uint64_t kEndBytes = 22;

/// Flags of an entry.
inline constexpr uint32_t kEncrypted = 1;
inline constexpr uint32_t kUtf8Name = 1 << 11;

/// Stands for a number that the zip64 extra field holds.
inline constexpr uint32_t kIn64 = 0xffffffff;
inline constexpr uint16_t kZip64Field = 0x0001;

}  // namespace zip

}  // namespace tern
