#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "tern/data/formats/file_io.h"

namespace tern {

/// A file that gets its name in one step once it is complete: until then it
/// grows beside `target` under another name, and it is removed when it never
/// gets that far. A reader sees the old file or the new one, and a failure
/// leaves the old one.
///
///   AtomicFile file(folder / "weights.safetensors");
///   file.write(header);
///   file.write(tensor);
///   file.commit();
class AtomicFile {
 public:
  /// Creates the file beside `target`, and removes what a killed process left
  /// there for the same target. \throws IoError.
  explicit AtomicFile(std::filesystem::path target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const uint8_t> bytes);
  void write(std::string_view text) { write(as_bytes(text)); }
  /// Bytes written so far.
  uint64_t size() const { return size_; }

  /// Waits until what was written is on the disk. For several files that belong
  /// together: after it a full disk can no longer come between their commits.
  void sync();
  /// Gives the file its name, in place of a file of that name.
  /// \param durable  Wait until file and name are on the disk.
  void commit(bool durable = true);
  /// The same for a file whose SHA-256 may be listed in `target`.sha256: an old
  /// list, which would refuse the new file, is removed just before the rename.
  /// \param sum  Write a new list.
  void commit_with_sum(bool sum, bool durable = true);

 private:
  std::filesystem::path target_, path_;
  FileHandle file_;
  uint64_t size_ = 0;
  bool is_synced_ = false;
};

/// A new folder beside `target` that becomes `target` in one step once it is
/// complete, and is removed when it never gets that far. A reader therefore
/// sees a whole folder or none. It does not wait for the disk, which takes
/// minutes on a busy one: after a power cut, files may be missing or short.
///
///   StagingFolder staging(cache / "digits");
///   write_file(staging.path() / "labels.csv", text);
///   staging.publish();
class StagingFolder {
 public:
  /// Creates the folder, and the parents of `target`. \throws IoError.
  explicit StagingFolder(std::filesystem::path target);
  ~StagingFolder();
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Renames the folder to `target`.
  /// \return false if `target` exists by now with something in it: another
  ///         process was first, and its folder stays.
  bool publish() { return publish(path_); }
  /// The same, with a folder inside `path()` in its place.
  bool publish(const std::filesystem::path& content);

  /// Removes what killed processes left beside `target`. Only while no other
  /// process can be filling a folder for the same target.
  static void remove_leftovers(const std::filesystem::path& target);

 private:
  std::filesystem::path target_, path_;
};

/// 16 hexadecimal digits from the system's source of randomness: a name that
/// nobody else has.
std::string random_id();

}  // namespace tern
