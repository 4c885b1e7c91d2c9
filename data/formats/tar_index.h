#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tern/data/formats/byte_file.h"

struct archive;

namespace tern {

/// A regular file in a tar archive.
struct TarMember {
  std::string name;
  /// Where its bytes are in the archive.
  uint64_t offset = 0, size = 0;
};

/// Lists the files of a plain tar archive, in its order, without reading them:
/// each can then be had by `file.read(member.offset, member.size)`. Folders are
/// left out.
///
/// \throws DataError naming the archive and the last file that is whole, if
///         the archive is compressed, damaged, cut off, goes on after its end,
///         or holds a link, a device, a sparse file, a name such as `../x`, or
///         more than `max_members` entries.
///
/// Reads some 4 KB for each file.
std::vector<TarMember> read_tar_index(
    const ByteFile& file,
    int64_t max_members = 5'000'000);

/// Goes through the entries of a tar archive, which libarchive parses.
class TarReader {
 public:
  struct Entry {
    TarMember member;
    bool is_folder = false;
  };

  /// \param path         For error messages.
  /// \param max_entries  Most files and folders that it may hold.
  /// \param give         Fills the span with the next bytes of the archive;
  ///                     fewer only at its end.
  /// \param skip         Passes over so many bytes, and returns how many there
  ///                     were. Null: they are read.
  TarReader(
      std::string path,
      int64_t max_entries,
      std::function<size_t(std::span<uint8_t>)> give,
      std::function<uint64_t(uint64_t)> skip = nullptr);

  /// The next file or folder; nothing at the end.
  /// \throws DataError if the archive is damaged, cut off or over its limit, or
  ///         the entry is a link, a device, a sparse file, or has a name such
  ///         as `../x`; what `give` throws.
  std::optional<Entry> next();
  /// The next bytes of the entry; empty at its end.
  std::span<const uint8_t> read();
  /// Throws a DataError that names the last whole file.
  [[noreturn]] void fail(const std::string& fault) const;

 private:
  struct Free {
    void operator()(archive* archive) const;
  };
  static ssize_t give_bytes(archive* archive, void* self, const void** bytes);
  [[noreturn]] void fail() const;

  std::string path_;
  int64_t max_entries_, entries_ = 0;
  std::function<size_t(std::span<uint8_t>)> give_;
  std::function<uint64_t(uint64_t)> skip_;
  std::vector<uint8_t> buffer_, data_;
  std::exception_ptr error_;
  std::unique_ptr<archive, Free> archive_;
  TarMember at_;  // the entry that was given last
  std::string last_whole_;
};

}  // namespace tern
