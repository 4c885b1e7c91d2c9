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
  /// Position of its bytes in the archive.
  uint64_t offset = 0, size = 0;
};

/// Lists the files of an uncompressed tar archive, in archive order, without
/// reading their content; read a file with
/// `file.read(member.offset, member.size)`. Skips folders.
///
/// \throws DataError that names the archive and, where known, the rejected
///         entry or the last complete file. Thrown if the archive is
///         compressed, damaged or truncated, or has data after its end marker;
///         if it contains a link, a device, a sparse file, a file whose data
///         fills a different number of 512-byte blocks than its header states,
///         or a name such as `../x`; or if it has more than `max_members`
///         entries.
///
/// Reads about 4 KB per file.
std::vector<TarMember> read_tar_index(
    const ByteFile& file,
    int64_t max_members = 5'000'000);

/// Reports the progress of a long task, in bytes; `total` is 0 if unknown. If
/// the function throws, the task ends with that exception.
using ByteProgress = std::function<void(int64_t done, int64_t total)>;

struct ExtractOptions {
  /// Maximum number of files and folders in an archive.
  int64_t max_entries = 5'000'000;
  /// Maximum size of the decompressed archive, and of all extracted files
  /// together; checked before each file is created.
  int64_t max_bytes = int64_t{64} << 30;
  /// Receives the bytes of the archive read so far, and its size.
  ByteProgress progress = nullptr;
};

/// Extracts a tar archive, plain or gzipped, into `folder`, which must exist
/// and be empty. After an error the folder contains the files extracted so far,
/// so use a StagingFolder.
///
/// Accepts only regular files and folders with relative names that stay inside;
/// does not restore modes, owners and times.
///
/// \throws DataError that names the archive and, where known, the rejected
///         entry or the last complete file. Thrown if the archive is damaged,
///         truncated or over a limit, or if it contains a link, a device, a
///         sparse file, a file whose size differs from its data, a duplicate
///         file, or a name such as `../x` or `/x`. IoError if a file cannot be
///         written.
void extract_tar(
    const std::filesystem::path& archive,
    const std::filesystem::path& folder,
    const ExtractOptions& options = {});

}  // namespace tern
