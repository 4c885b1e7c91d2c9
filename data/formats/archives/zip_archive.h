#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

/// A file inside a zip archive, stored as it is.
struct ZipEntry {
  uint64_t begin = 0;  // of its bytes in the archive
  uint64_t size = 0;
  uint32_t crc32 = 0;
};

/// The table of contents of a zip archive of stored files, such as `torch.save`
/// writes; zip64 too. Nothing is ever extracted to a disk.
class ZipArchive {
 public:
  /// Whether a file begins as a zip archive does.
  static bool is_zip(const ByteFile& file);

  /// \throws DataError if the archive is cut off or its table of contents
  ///         damaged; if an entry is compressed, encrypted, reaches beyond the
  ///         archive or into another, is there twice, differs between table and
  ///         place, or has a name such as `../x` or `/x`.
  explicit ZipArchive(ByteFile file);

  const std::map<std::string, ZipEntry>& entries() const { return entries_; }
  /// Null if there is no such entry.
  const ZipEntry* find(const std::string& name) const;

  /// The bytes of an entry, checked against its CRC-32.
  /// \throws DataError if they differ or are more than `max_bytes`; IoError.
  std::vector<uint8_t> read(const std::string& name, uint64_t max_bytes) const;

 private:
  ByteFile file_;
  std::map<std::string, ZipEntry> entries_;
};

}  // namespace tern
