#include <algorithm>
#include <zlib.h>

#include "tern/data/formats/archives/zip_archive.h"

namespace tern {

namespace {

constexpr uint16_t kVersion = 20, kVersionZip64 = 45;  // 2.0, 4.5
constexpr uint16_t kPaddingField = 0x4246;             // as PyTorch has it
constexpr uint64_t kFieldHead = 4;

// Numbers in little-endian order.
void add16(std::string& text, uint64_t number) {
  text += {static_cast<char>(number), static_cast<char>(number >> 8)};
}
void add32(std::string& text, uint64_t number) {
  add16(text, number);
  add16(text, number >> 16);
}
void add64(std::string& text, uint64_t number) {
  add32(text, number);
  add32(text, number >> 32);
}

// Version, flags, method and time: the same in an entry's header and row. The
// time is the first that zip knows, so that equal weights are equal files.
void add_kind(std::string& text, bool is_zip64) {
  add16(text, is_zip64 ? kVersionZip64 : kVersion);
  add16(text, zip::kUtf8Name);
  add16(text, 0);           // stored
  add16(text, 0);           // 00:00:00
  add16(text, 1 << 5 | 1);  // 1980-01-01
}

}  // namespace

void ZipWriter::add(
    const std::string& name,
    std::span<const uint8_t> bytes,
    uint64_t alignment) {
  const auto crc =
      static_cast<uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
  const Entry entry{name, file_.size(), bytes.size(), crc};
  const bool is_zip64 = entry.size >= zip64_from_;
  std::string extra;
  if (is_zip64) {
    add16(extra, zip::kZip64Field);
    add16(extra, 16);
    add64(extra, entry.size);
    add64(extra, entry.size);
  }
  const uint64_t begin = entry.header + zip::kHeaderBytes + name.size() +
                         extra.size() + kFieldHead;
  const uint64_t padding = (alignment - begin % alignment) % alignment;
  add16(extra, kPaddingField);
  add16(extra, padding);
  extra.append(padding, 'Z');

  std::string header;
  add32(header, zip::kHeaderSignature);
  add_kind(header, is_zip64);
  add32(header, entry.crc32);
  add32(header, is_zip64 ? zip::kIn64 : entry.size);
  add32(header, is_zip64 ? zip::kIn64 : entry.size);
  add16(header, name.size());
  add16(header, extra.size());
  file_.write(header + name + extra);
  file_.write(bytes);
  entries_.push_back(entry);
}

void ZipWriter::add_row(const Entry& entry, std::string& table) const {
  const bool is_large = entry.size >= zip64_from_;
  const bool is_far = entry.header >= zip64_from_;
  std::string numbers;
  if (is_large) {
    add64(numbers, entry.size);
    add64(numbers, entry.size);
  }
  if (is_far) add64(numbers, entry.header);
  std::string extra;
  if (!numbers.empty()) {
    add16(extra, zip::kZip64Field);
    add16(extra, numbers.size());
    extra += numbers;
  }

  add32(table, zip::kRowSignature);
  add16(table, extra.empty() ? kVersion : kVersionZip64);  // made by
  add_kind(table, !extra.empty());
  add32(table, entry.crc32);
  add32(table, is_large ? zip::kIn64 : entry.size);
  add32(table, is_large ? zip::kIn64 : entry.size);
  add16(table, entry.name.size());
  add16(table, extra.size());
  add16(table, 0);  // comment
  add16(table, 0);  // disk
  add16(table, 0);  // attributes, inner and outer
  add32(table, 0);
  add32(table, is_far ? zip::kIn64 : entry.header);
  table += entry.name + extra;
}

void ZipWriter::finish() {
  const uint64_t begin = file_.size();
  std::string text;
  for (const Entry& entry : entries_) add_row(entry, text);
  const uint64_t size = text.size();

  const bool is_zip64 =
      std::max(begin, size) >= zip64_from_ ||
      entries_.size() >= std::min<uint64_t>(zip64_from_, 0xffff);
  if (is_zip64) {
    add32(text, zip::kEnd64Signature);
    add64(text, zip::kEnd64Bytes - 12);  // what follows in this record
    add16(text, kVersionZip64);
    add16(text, kVersionZip64);
    add32(text, 0);  // this disk, and that of the table
    add32(text, 0);
    add64(text, entries_.size());
    add64(text, entries_.size());
    add64(text, size);
    add64(text, begin);
    add32(text, zip::kLocatorSignature);
    add32(text, 0);
    add64(text, begin + size);
    add32(text, 1);
  }
  add32(text, zip::kEndSignature);
  add32(text, 0);  // this disk, and that of the table
  add16(text, is_zip64 ? 0xffff : entries_.size());
  add16(text, is_zip64 ? 0xffff : entries_.size());
  add32(text, is_zip64 ? zip::kIn64 : size);
  add32(text, is_zip64 ? zip::kIn64 : begin);
  add16(text, 0);  // comment
  file_.write(text);
}

}  // namespace tern
