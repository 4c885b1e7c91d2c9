#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "tern/data/formats/file_io.h"
#include "tern/data/formats/tar_samples.h"

namespace tern {

/// A tar archive of samples that is read in place. Safe to read from several
/// threads.
class TarShard {
 public:
  /// Reads the archive's index.
  /// \throws DataError as `read_tar_index` and TarSamples, and for an archive
  ///         without a sample; IoError.
  explicit TarShard(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const TarSamples& samples() const { return samples_; }
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
  // What tells a file from one that took its place.
  struct Stamp {
    uint64_t device = 0, inode = 0;
    int64_t size = 0, seconds = 0, nanoseconds = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const FileHandle& file, const std::filesystem::path&);

  std::shared_ptr<const FileHandle> file() const;

  std::filesystem::path path_;
  TarSamples samples_;
  Stamp stamp_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const FileHandle> file_;  // null: closed
};

}  // namespace tern
