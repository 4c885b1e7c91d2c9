#include "tern/data/formats/file_io.h"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "tern/data/formats/error.h"

namespace tern {

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

FileHandle open_file(const std::filesystem::path& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const bool creates = (flags & O_CREAT) != 0;
    throw IoError(path, creates ? "create this file" : "open", errno);
  }
  return FileHandle(fd);
}

namespace {

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

}  // namespace

FileHandle open_regular_file(const std::filesystem::path& path) {
  FileHandle file = open_file(path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) throw IoError(path, "inspect", errno);
  if (!S_ISREG(info.st_mode)) {
    throw DataError(
        path,
        std::string("is ") + kind_of(info.st_mode) +
            "; expected a file. Remove or rename it, or give another path.");
  }
  return file;
}

int64_t file_size(const FileHandle& file, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(file.fd(), &info) != 0) throw IoError(path, "inspect", errno);
  return info.st_size;
}

namespace {

// Calls `read_some(bytes left)` until all are read or the file ends.
template <class ReadSome>
size_t read_until_full(
    std::span<uint8_t> bytes,
    const std::filesystem::path& path,
    const ReadSome& read_some) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = read_some(bytes.subspan(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError(path, "read", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

}  // namespace

size_t read_up_to(
    const FileHandle& file,
    std::span<uint8_t> bytes,
    const std::filesystem::path& path) {
  return read_until_full(bytes, path, [&](std::span<uint8_t> left) {
    return ::read(file.fd(), left.data(), left.size());
  });
}

size_t read_up_to_at(
    const FileHandle& file,
    uint64_t offset,
    std::span<uint8_t> bytes,
    const std::filesystem::path& path) {
  return read_until_full(bytes, path, [&](std::span<uint8_t> left) {
    const uint64_t at = offset + (bytes.size() - left.size());
    return ::pread(file.fd(), left.data(), left.size(), static_cast<off_t>(at));
  });
}

bool lock_file(const FileHandle& file) {
  int result = 0;
  do {
    result = ::flock(file.fd(), LOCK_EX);
  } while (result != 0 && errno == EINTR);
  return result == 0;
}

void write_all(
    const FileHandle& file,
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw IoError(path, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void sync_file(const FileHandle& file, const std::filesystem::path& path) {
  if (::fsync(file.fd()) != 0) throw IoError(path, "write to the disk", errno);
}

void sync_folder(const std::filesystem::path& folder) {
  sync_file(open_file(folder, O_RDONLY | O_DIRECTORY), folder);
}

std::vector<uint8_t> read_file(
    const std::filesystem::path& path,
    int64_t max_bytes) {
  const FileHandle file = open_regular_file(path);
  const int64_t size = file_size(file, path);
  if (size > max_bytes) {
    throw DataError(
        path,
        "has " + std::to_string(size) + " bytes; expected at most " +
            std::to_string(max_bytes));
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  bytes.resize(read_up_to(file, bytes, path));
  return bytes;
}

void write_file(
    const std::filesystem::path& path,
    std::span<const uint8_t> bytes) {
  write_all(open_file(path, O_WRONLY | O_CREAT | O_TRUNC), bytes, path);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(
      path,
      std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(folder, "create this folder", error.value());
}

}  // namespace tern
