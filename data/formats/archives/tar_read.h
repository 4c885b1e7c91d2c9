#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tern/data/formats/file_io.h"

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
///         or holds a link, a device, a sparse file, a file whose size reaches
///         into another block than its data, a name such as `../x`, or more
///         than `max_members` entries.
///
/// Reads some 4 KB for each file.
std::vector<TarMember> read_tar_index(
    const ByteFile& file,
    int64_t max_members = 5'000'000);

/// Told how far a long task is, in bytes; `total` is 0 where it is unknown.
/// What it throws ends the task.
using ByteProgress = std::function<void(int64_t done, int64_t total)>;

struct ExtractOptions {
  /// Most files and folders that an archive may hold.
  int64_t max_entries = 5'000'000;
  /// Most bytes that it may hold when inflated, and that its files may have on
  /// the disk; checked before a file is created.
  int64_t max_bytes = int64_t{64} << 30;
  /// Bytes of the archive that are read, and its size.
  ByteProgress progress = nullptr;
};

/// Extracts a tar archive, plain or gzipped, into `folder`, which exists and is
/// empty: a StagingFolder, since after an error it holds what was extracted
/// until then.
///
/// Only regular files and folders are accepted, with relative names that stay
/// inside; modes, owners and times are not taken over.
///
/// \throws DataError naming archive and entry if the archive is damaged, cut
///         off, over a limit, or holds a link, a device, a sparse file, a file
///         of another size than its data, the same file twice, or a name such
///         as `../x` or `/x`. IoError if a file cannot be written.
void extract_tar(
    const std::filesystem::path& archive,
    const std::filesystem::path& folder,
    const ExtractOptions& options = {});

}  // namespace tern
