#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tern/data/formats/archives/tar_read.h"
#include "tern/data/formats/file_io.h"

namespace tern {

/// Returns the key of the sample that a file of a shard belongs to: the file's
/// name up to the first dot after the last slash, "cat/0012" for
/// "cat/0012.seg.png".
std::string_view sample_key(std::string_view name);

/// Returns the field of the sample that a file contains: the rest of the file's
/// name, "seg.png". Empty for a file that belongs to no sample because it is
/// hidden or has no suffix.
std::string_view sample_field(std::string_view name);

/// True if two field names are equal, ignoring case.
bool is_same_field(std::string_view a, std::string_view b);

/// Groups the files of a shard in WebDataset's layout by sample, as views of
/// `members`. Removes files that belong to no sample from `members`.
/// \param path  Of the archive, for messages.
/// \throws DataError if the files of a sample are not consecutive or a sample
///         has a field twice. Without this check, half a sample could pass for
///         a complete one.
std::vector<std::span<const TarMember>> tar_samples(
    std::vector<TarMember>& members,
    const std::string& path);

/// A tar archive of samples that is read in place. Safe to read from several
/// threads.
class TarShard {
 public:
  /// Reads the archive's index.
  /// \throws the errors of `read_tar_index` and `tar_samples`; DataError for an
  ///         archive without samples; IoError.
  explicit TarShard(std::filesystem::path path);
  TarShard(const TarShard&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::span<const TarMember>>& samples() const {
    return samples_;
  }
  /// Returns the size and the modification time of the file, to validate cached
  /// data derived from it.
  std::string version() const;
  /// Returns, for example, "train-000003.tar, sample 'cat/0012'".
  std::string describe(int64_t sample) const;

  /// Fills `bytes`, which has the member's size.
  /// \throws DataError if the archive was replaced or truncated since it was
  ///         opened; IoError.
  void read(const TarMember& member, std::span<uint8_t> bytes) const;

  /// Closes the file until it is read again, so that a dataset may have more
  /// shards than a process can have open files.
  void close() const;

 private:
  // Identifies a file, to detect that it was replaced: its size, seconds and
  // nanoseconds of its modification time, device and inode.
  using Stamp = std::array<int64_t, 5>;
  Stamp stamp_of(const FileHandle& file) const;

  std::shared_ptr<const FileHandle> file() const;

  std::filesystem::path path_;
  std::vector<TarMember> members_;
  std::vector<std::span<const TarMember>> samples_;
  Stamp stamp_{};
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const FileHandle> file_;  // null: closed
};

}  // namespace tern
