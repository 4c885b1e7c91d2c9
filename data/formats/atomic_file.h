#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tern/data/formats/file_io.h"

namespace tern {

/// A file that gets its final name atomically, once it is complete. Until then
/// it is written beside `target` under a temporary name, and removed if it is
/// never committed. A reader sees either the old file or the new file; after a
/// failure the old file remains.
///
///   AtomicFile file(folder / "weights.safetensors");
///   file.write(header);
///   file.write(tensor);
///   file.commit();
class AtomicFile {
 public:
  /// Creates the file beside `target`, and removes files that killed processes
  /// left there for the same target.
  /// \throws IoError.
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const uint8_t> bytes);
  void write(std::string_view text) { write(as_bytes(text)); }
  /// Bytes written so far.
  uint64_t size() const { return size_; }

  /// Waits until the written data is on the disk. Use it for several files that
  /// belong together: once all are synced, a full disk can no longer make one
  /// commit fail after other commits have succeeded.
  void sync();
  /// Renames the file to `target`, replacing an existing file.
  /// \param durable  Waits until file and name are on the disk.
  void commit(bool durable = true);
  /// Like `commit`, for a file that may have a checksum file, `target`.sha256.
  /// Removes an old checksum file just before the rename, because it does not
  /// match the new file.
  /// \param sum  Writes a new checksum file.
  void commit_with_sum(bool sum, bool durable = true);

 private:
  std::filesystem::path target_, path_;
  FileHandle file_;
  uint64_t size_ = 0;
  bool is_synced_ = false;
};

/// A new folder beside `target` that is renamed to `target` once it is
/// complete, and is removed if it is never published. A reader therefore sees a
/// complete folder or none. Does not wait until the data is on the disk, which
/// would take minutes on a busy disk: after a power failure, files may be
/// missing or truncated.
///
///   StagingFolder staging(cache / "digits");
///   write_file(staging.path() / "labels.csv", text);
///   staging.publish();
class StagingFolder {
 public:
  /// Creates the folder, and the parents of `target`.
  /// \throws IoError.
  explicit StagingFolder(std::filesystem::path target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Renames the folder to `target`.
  /// \return false if `target` exists and is not empty: another process was
  ///         first, and its folder is kept.
  bool publish() { return publish(path_); }
  /// The same for a folder inside `path()`.
  bool publish(const std::filesystem::path& content);

  /// Removes folders that killed processes left beside `target`. Call it only
  /// while no other process can be filling a folder for the same target.
  static void remove_leftovers(const std::filesystem::path& target);

 private:
  std::filesystem::path target_, path_;
};

/// Returns 16 random hexadecimal digits from the system's random source, for
/// use as a unique name.
std::string random_id();

}  // namespace tern
