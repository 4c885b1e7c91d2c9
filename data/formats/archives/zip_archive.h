#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

/// A file inside a zip archive, stored without compression.
struct ZipEntry {
  uint64_t begin = 0;  // of its bytes in the archive
  uint64_t size = 0;
  uint32_t crc32 = 0;
};

/// The table of contents of a zip archive of uncompressed files, such as
/// `torch.save` writes, including zip64. Never extracts anything to a disk.
class ZipArchive {
 public:
  /// True if the file begins like a zip archive.
  static bool is_zip(const ByteFile& file);

  /// \throws DataError if the archive is truncated or its table of contents
  ///         damaged; if an entry is compressed, encrypted, extends beyond the
  ///         archive or into another entry, is duplicated, differs between
  ///         table and local header, or has a name such as `../x` or `/x`.
  explicit ZipArchive(ByteFile file);

  const std::map<std::string, ZipEntry>& entries() const { return entries_; }
  /// Null if there is no such entry.
  const ZipEntry* find(const std::string& name) const;

  /// Returns the bytes of an entry and checks their CRC-32.
  /// \throws DataError if it differs or there are more than `max_bytes`;
  ///         IoError.
  std::vector<uint8_t> read(const std::string& name, uint64_t max_bytes) const;

 private:
  ByteFile file_;
  std::map<std::string, ZipEntry> entries_;
};

}  // namespace tern
