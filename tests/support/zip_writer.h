#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>

#include "tern/data/formats/atomic_file.h"

namespace tern {

/// The records of a zip archive: a header before each entry, a table of
/// contents with one row per entry, and the end. Source: PKWARE's APPNOTE.TXT,
/// sections 4.3 to 4.5.
namespace zip {

inline constexpr uint32_t kHeaderSignature = 0x04034b50;
inline constexpr uint32_t kRowSignature = 0x02014b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocatorSignature = 0x07064b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;

/// Sizes of the records without names, extra fields and comments.
inline constexpr uint64_t kHeaderBytes = 30;
inline constexpr uint64_t kRowBytes = 46;
inline constexpr uint64_t kEnd64Bytes = 56;
inline constexpr uint64_t kLocatorBytes = 20;
inline constexpr uint64_t kEndBytes = 22;

/// Flags of an entry.
inline constexpr uint32_t kEncrypted = 1;
inline constexpr uint32_t kUtf8Name = 1 << 11;

/// Placeholder for a number in the zip64 extra field.
inline constexpr uint32_t kIn64 = 0xffffffff;
inline constexpr uint16_t kZip64Field = 0x0001;

inline constexpr uint16_t kVersion = 20, kVersionZip64 = 45;  // 2.0, 4.5
inline constexpr uint16_t kPaddingField = 0x4246;  // the ID that PyTorch uses
inline constexpr uint64_t kFieldHead = 4;

// Numbers in little-endian order.
inline void add16(std::string& text, uint64_t number) {
  text += {static_cast<char>(number), static_cast<char>(number >> 8)};
}
inline void add32(std::string& text, uint64_t number) {
  add16(text, number);
  add16(text, number >> 16);
}
inline void add64(std::string& text, uint64_t number) {
  add32(text, number);
  add32(text, number >> 32);
}

// Version, flags, method and time: the same in an entry's header and row. The
// time is zip's earliest, so that equal weights give equal files.
inline void add_kind(std::string& text, bool is_zip64) {
  add16(text, is_zip64 ? kVersionZip64 : kVersion);
  add16(text, kUtf8Name);
  add16(text, 0);           // stored
  add16(text, 0);           // 00:00:00
  add16(text, 1 << 5 | 1);  // 1980-01-01
}

}  // namespace zip

/// Writes a zip archive of stored files, front to back.
class ZipWriter {
 public:
  /// \param zip64_from  Sizes and offsets from this value on are written as
  ///     zip64; only tests use a value other than the format's limit.
  explicit ZipWriter(AtomicFile& file, uint64_t zip64_from = 0xffffffff)
      : file_(file), zip64_from_(zip64_from) {}

  /// Adds a file whose bytes begin at a multiple of `alignment`, so that they
  /// can be memory-mapped.
  void add(
      const std::string& name,
      std::span<const uint8_t> bytes,
      uint64_t alignment = 1);
  void add(const std::string& name, std::string_view text) {
    add(name, as_bytes(text));
  }

  /// Writes the table of contents.
  void finish();

 private:
  struct Entry {
    std::string name;
    uint64_t header, size;
    uint32_t crc32;
  };
  void add_row(const Entry& entry, std::string& table) const;

  AtomicFile& file_;
  uint64_t zip64_from_;
  std::vector<Entry> entries_;
};

inline void ZipWriter::add(
    const std::string& name,
    std::span<const uint8_t> bytes,
    uint64_t alignment) {
  const auto crc =
      static_cast<uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
  const Entry entry{name, file_.size(), bytes.size(), crc};
  const bool is_zip64 = entry.size >= zip64_from_;
  std::string extra;
  if (is_zip64) {
    zip::add16(extra, zip::kZip64Field);
    zip::add16(extra, 16);
    zip::add64(extra, entry.size);
    zip::add64(extra, entry.size);
  }
  const uint64_t begin = entry.header + zip::kHeaderBytes + name.size() +
                         extra.size() + zip::kFieldHead;
  const uint64_t padding = (alignment - begin % alignment) % alignment;
  zip::add16(extra, zip::kPaddingField);
  zip::add16(extra, padding);
  extra.append(padding, 'Z');

  std::string header;
  zip::add32(header, zip::kHeaderSignature);
  zip::add_kind(header, is_zip64);
  zip::add32(header, entry.crc32);
  zip::add32(header, is_zip64 ? zip::kIn64 : entry.size);
  zip::add32(header, is_zip64 ? zip::kIn64 : entry.size);
  zip::add16(header, name.size());
  zip::add16(header, extra.size());
  file_.write(header + name + extra);
  file_.write(bytes);
  entries_.push_back(entry);
}

inline void ZipWriter::add_row(const Entry& entry, std::string& table) const {
  const bool is_large = entry.size >= zip64_from_;
  const bool is_far = entry.header >= zip64_from_;
  std::string numbers;
  if (is_large) {
    zip::add64(numbers, entry.size);
    zip::add64(numbers, entry.size);
  }
  if (is_far) zip::add64(numbers, entry.header);
  std::string extra;
  if (!numbers.empty()) {
    zip::add16(extra, zip::kZip64Field);
    zip::add16(extra, numbers.size());
    extra += numbers;
  }

  zip::add32(table, zip::kRowSignature);
  zip::add16(
      table,
      extra.empty() ? zip::kVersion : zip::kVersionZip64);  // made by
  zip::add_kind(table, !extra.empty());
  zip::add32(table, entry.crc32);
  zip::add32(table, is_large ? zip::kIn64 : entry.size);
  zip::add32(table, is_large ? zip::kIn64 : entry.size);
  zip::add16(table, entry.name.size());
  zip::add16(table, extra.size());
  zip::add16(table, 0);  // comment
  zip::add16(table, 0);  // disk
  zip::add16(table, 0);  // attributes, inner and outer
  zip::add32(table, 0);
  zip::add32(table, is_far ? zip::kIn64 : entry.header);
  table += entry.name + extra;
}

inline void ZipWriter::finish() {
  const uint64_t begin = file_.size();
  std::string text;
  for (const Entry& entry : entries_) add_row(entry, text);
  const uint64_t size = text.size();

  const bool is_zip64 =
      std::max(begin, size) >= zip64_from_ ||
      entries_.size() >= std::min<uint64_t>(zip64_from_, 0xffff);
  if (is_zip64) {
    zip::add32(text, zip::kEnd64Signature);
    zip::add64(text, zip::kEnd64Bytes - 12);  // size of the rest of this record
    zip::add16(text, zip::kVersionZip64);
    zip::add16(text, zip::kVersionZip64);
    zip::add32(text, 0);  // this disk, and that of the table
    zip::add32(text, 0);
    zip::add64(text, entries_.size());
    zip::add64(text, entries_.size());
    zip::add64(text, size);
    zip::add64(text, begin);
    zip::add32(text, zip::kLocatorSignature);
    zip::add32(text, 0);
    zip::add64(text, begin + size);
    zip::add32(text, 1);
  }
  zip::add32(text, zip::kEndSignature);
  zip::add32(text, 0);  // this disk, and that of the table
  zip::add16(text, is_zip64 ? 0xffff : entries_.size());
  zip::add16(text, is_zip64 ? 0xffff : entries_.size());
  zip::add32(text, is_zip64 ? zip::kIn64 : size);
  zip::add32(text, is_zip64 ? zip::kIn64 : begin);
  zip::add16(text, 0);  // comment
  file_.write(text);
}

}  // namespace tern
