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

/// The sample that a file of a shard belongs to: its name up to the first dot
/// after the last slash, "cat/0012" of "cat/0012.seg.png".
std::string_view sample_key(std::string_view name);

/// What it is of that sample: the rest, "seg.png". Empty for a file that
/// belongs to none: hidden, or without a suffix.
std::string_view sample_field(std::string_view name);

/// Whether two names of fields are the same: case does not count.
bool is_same_field(std::string_view a, std::string_view b);

/// The files of a shard in WebDataset's layout, sample by sample, as views of
/// `members`, which loses those that belong to none.
/// \param path  Of the archive, for messages.
/// \throws DataError if files of a sample do not stand together, or a sample
///         has a field twice: half a sample would be taken for a whole one.
std::vector<std::span<const TarMember>> tar_samples(
    std::vector<TarMember>& members,
    const std::string& path);

/// A tar archive of samples that is read in place. Safe to read from several
/// threads.
class TarShard {
 public:
  /// Reads the archive's index.
  /// \throws DataError as `read_tar_index` and `tar_samples`, or for an archive
  ///         without a sample; IoError.
  explicit TarShard(std::filesystem::path path);
  TarShard(const TarShard&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<std::span<const TarMember>>& samples() const {
    return samples_;
  }
  /// Size and time of the file, for whoever keeps what was made of it.
  std::string version() const;
  /// "train-000003.tar, sample 'cat/0012'"
  std::string describe(int64_t sample) const;

  /// Fills `bytes`, of the member's size.
  /// \throws DataError if the archive is another one by now, or shorter;
  ///         IoError.
  void read(const TarMember& member, std::span<uint8_t> bytes) const;

  /// Closes the file until it is read again, so that a set may have more shards
  /// than a process may have open files.
  void close() const;

 private:
  // What tells a file from one that took its place: bytes, seconds and
  // nanoseconds of its change, device and inode.
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
