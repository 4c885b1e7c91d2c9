#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tern/data/formats/atomic_file.h"

namespace tern {

/// Writes a zip archive of stored files, front to back.
class ZipWriter {
 public:
  /// \param zip64_from  Sizes and offsets from here on are written as zip64;
  ///     other than the format's own limit only in tests.
  explicit ZipWriter(AtomicFile& file, uint64_t zip64_from = 0xffffffff)
      : file_(file), zip64_from_(zip64_from) {}

  /// Adds a file whose bytes begin at a multiple of `alignment`, so that they
  /// can be mapped.
  void add(
      const std::string& name,
      std::span<const uint8_t> bytes,
      uint64_t alignment = 1);
  void add(const std::string& name, std::string_view text);

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

}  // namespace tern
