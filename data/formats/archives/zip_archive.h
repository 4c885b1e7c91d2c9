#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/formats/atomic_file.h"
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

}  // namespace tern
