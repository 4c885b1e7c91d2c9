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
  void write(std::string_view text);
  /// Bytes written so far.
  uint64_t size() const { return size_; }

  /// Waits until what was written is on the disk. For several files that belong
  /// together: after it a full disk can no longer come between their commits.
  void sync();
  /// Gives the file its name, in place of a file of that name.
  /// \param durable  Wait until file and name are on the disk.
  void commit(bool durable = true);

 private:
  std::filesystem::path target_, path_;
  FileHandle file_;
  uint64_t size_ = 0;
  bool is_synced_ = false;
};

/// What the names begin with that stand beside `target` while it is made.
std::string temp_prefix(const std::filesystem::path& target);

/// A random path beside `target` for something that will be renamed to it.
std::filesystem::path temp_name_beside(const std::filesystem::path& target);

}  // namespace tern
