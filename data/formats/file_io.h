#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>
#include <vector>

#include "tern/data/formats/bytes.h"

namespace tern {

/// An open file that is closed by the destructor. Movable, not copyable.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileHandle();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Calls open(2) with close-on-exec; a new file gets mode 0644.
/// \throws IoError that names the path and the system's reason.
FileHandle open_file(const std::filesystem::path& path, int flags);

/// Opens a regular file for reading. Never blocks: pipes and devices are
/// rejected.
/// \throws IoError if it cannot be opened, DataError if it is not a regular
///         file.
FileHandle open_regular_file(const std::filesystem::path& path);

/// Calls fstat(2). `path` is only for error messages, here and below.
struct stat file_status(
    const FileHandle& file,
    const std::filesystem::path& path);

/// Returns the size in bytes.
int64_t file_size(const FileHandle& file, const std::filesystem::path& path);

/// Reads up to `bytes.size()` bytes starting at `offset`, independent of the
/// file position. Returns fewer only at the end of the file, so 0 means the
/// end. Can be called from several threads.
size_t read_up_to(
    const FileHandle& file,
    std::span<uint8_t> bytes,
    const std::filesystem::path& path,
    uint64_t offset = 0);

/// Waits until no other process holds the file's lock, and holds it until the
/// file is closed.
/// \return false on a file system without locks (some NFS).
bool lock_file(const FileHandle& file);

/// Writes all of `bytes`, with as many calls as needed.
void write_all(
    const FileHandle& file,
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path);

/// Waits until the file's bytes are on the disk.
void sync_file(const FileHandle& file, const std::filesystem::path& path);

/// Waits until the names in a folder are on the disk; needed after a rename.
void sync_folder(const std::filesystem::path& folder);

/// Returns all bytes of a regular file.
/// \throws DataError if there are more than `max_bytes`; IoError.
std::vector<uint8_t> read_file(
    const std::filesystem::path& path,
    int64_t max_bytes = std::numeric_limits<int64_t>::max());

/// Creates or replaces a file. A concurrent reader may see an incomplete file;
/// use a StagingFolder to avoid that.
void write_file(
    const std::filesystem::path& path,
    std::span<const uint8_t> bytes);
inline void write_file(
    const std::filesystem::path& path,
    std::string_view text) {
  write_file(path, as_bytes(text));
}

/// Creates a folder and its parents.
/// \throws IoError.
void make_folders(const std::filesystem::path& folder);

/// Random-access bytes from a regular file or from memory. Copies share the
/// file. Thread-safe for reading.
class ByteFile {
 public:
  /// \throws IoError if the file cannot be opened, DataError if it is a folder,
  ///         a pipe or a device.
  explicit ByteFile(const std::filesystem::path& path);
  /// A view of `bytes`. `path` is for error messages.
  ByteFile(std::span<const uint8_t> bytes, std::string path);

  uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  /// Fills `bytes` with the data at `offset`.
  /// \throws DataError if there is not enough data; IoError.
  void read(uint64_t offset, std::span<uint8_t> bytes) const;
  std::vector<uint8_t> read(uint64_t offset, uint64_t size) const;

  /// Maps the whole file into memory; the mapping ends with the last copy of
  /// the pointer. The file must not be empty.
  /// \param is_writable  Makes the memory writable, without changing the file.
  std::shared_ptr<uint8_t> map(bool is_writable = false) const;

 private:
  [[noreturn]] void throw_end(uint64_t offset, uint64_t expected) const;

  std::string path_;
  std::shared_ptr<const FileHandle> file_;  // null: in memory
  std::span<const uint8_t> bytes_;
  uint64_t size_ = 0;
};

}  // namespace tern
