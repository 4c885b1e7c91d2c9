#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tern/data/formats/file_io.h"

namespace tern {

/// Bytes that are read at any place: of a regular file, or in memory. Copies
/// share the file. May be read from several threads.
class ByteFile {
 public:
  /// \throws IoError if the file cannot be opened, DataError if it is a folder,
  ///         a pipe or a device.
  explicit ByteFile(const std::filesystem::path& path);
  /// Views `bytes`. `path` is for error messages.
  ByteFile(std::span<const uint8_t> bytes, std::string path);

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Fills `bytes` from `offset` on.
  /// \throws DataError if there are fewer; IoError.
  void read(uint64_t offset, std::span<uint8_t> bytes) const;
  std::vector<uint8_t> read(uint64_t offset, uint64_t size) const;

  /// The whole file in memory, unmapped with the last copy of the pointer.
  /// Writing to it leaves the file alone. Only for a file that is not empty.
  std::shared_ptr<uint8_t> map() const;

 private:
  [[noreturn]] void throw_end(uint64_t offset, uint64_t expected) const;

  std::string path_;
  std::shared_ptr<const FileHandle> file_;  // null: in memory
  std::span<const uint8_t> bytes_;
  uint64_t size_ = 0;
};

}  // namespace tern
