#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace tern {

/// Told how far a long task is, in bytes; `total` is 0 where it is unknown.
/// What it throws ends the task.
using ByteProgress = std::function<void(int64_t done, int64_t total)>;

struct ExtractOptions {
  /// Most files and folders that an archive may hold.
  int64_t max_entries = 5'000'000;
  /// Most bytes that it may hold when inflated.
  int64_t max_bytes = int64_t{64} << 30;
  /// Bytes of the archive that are read, and its size.
  ByteProgress progress = nullptr;
};

/// Extracts a tar archive, plain or gzipped, into a new folder. The folder
/// appears complete or not at all. If another process makes it at the same
/// time, the first one stays.
///
/// Only regular files and folders are accepted, with relative names that stay
/// inside; modes, owners and times are not taken over.
///
/// \throws DataError naming archive and entry if the archive is damaged, cut
///         off, over a limit, or holds a link, a device, a sparse file, the
///         same file twice, or a name such as `../x` or `/x`; also if `folder`
///         exists and is not empty. IoError if a file cannot be written.
void extract_tar(
    const std::filesystem::path& archive,
    const std::filesystem::path& folder,
    const ExtractOptions& options = {});

/// The same into `folder`, which exists and is empty. After an error it holds
/// what was extracted until then.
void extract_tar_into(
    const std::filesystem::path& archive,
    const std::filesystem::path& folder,
    const ExtractOptions& options = {});

}  // namespace tern
