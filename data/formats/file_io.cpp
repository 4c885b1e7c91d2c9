#include "tern/data/formats/file_io.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

#include "tern/data/formats/error.h"

namespace tern {

namespace {

// Returns the result of a system call, repeated if a signal interrupts it.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

}  // namespace

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

FileHandle open_file(const std::filesystem::path& path, int flags) {
  const int fd = uninterrupted(
      [&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0644); });
  if (fd < 0) {
    const bool creates = (flags & O_CREAT) != 0;
    throw IoError(path, creates ? "create this file" : "open", errno);
  }
  return FileHandle(fd);
}

struct stat file_status(
    const FileHandle& file,
    const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.fd(), &status) != 0) throw IoError(path, "inspect", errno);
  return status;
}

FileHandle open_regular_file(const std::filesystem::path& path) {
  FileHandle file = open_file(path, O_RDONLY | O_NONBLOCK);
  const mode_t mode = file_status(file, path).st_mode;
  if (!S_ISREG(mode)) {
    throw DataError(
        path,
        std::string("is ") + kind_of(mode) +
            "; expected a file. Remove or rename it, or give another path.");
  }
  return file;
}

int64_t file_size(const FileHandle& file, const std::filesystem::path& path) {
  return file_status(file, path).st_size;
}

size_t read_up_to(
    const FileHandle& file,
    std::span<uint8_t> bytes,
    const std::filesystem::path& path,
    uint64_t offset) {
  size_t done = 0;
  while (done < bytes.size()) {
    const auto left = bytes.subspan(done);
    const auto at = static_cast<off_t>(offset + done);
    const ssize_t n = uninterrupted(
        [&] { return ::pread(file.fd(), left.data(), left.size(), at); });
    if (n < 0) throw IoError(path, "read", errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

bool lock_file(const FileHandle& file) {
  return uninterrupted([&] { return ::flock(file.fd(), LOCK_EX); }) == 0;
}

void write_all(
    const FileHandle& file,
    std::span<const uint8_t> bytes,
    const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = uninterrupted(
        [&] { return ::write(file.fd(), bytes.data(), bytes.size()); });
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
            std::to_string(max_bytes) + ".");
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

void make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw IoError(folder, "create this folder", error.value());
}

ByteFile::ByteFile(const std::filesystem::path& path)
    : path_(path.string()),
      file_(std::make_shared<FileHandle>(open_regular_file(path))),
      size_(static_cast<uint64_t>(file_size(*file_, path))) {}

ByteFile::ByteFile(std::span<const uint8_t> bytes, std::string path)
    : path_(std::move(path)), bytes_(bytes), size_(bytes.size()) {}

void ByteFile::read(uint64_t offset, std::span<uint8_t> bytes) const {
  size_t got = 0;
  if (file_) {
    got = read_up_to(*file_, bytes, path_, offset);
  } else if (offset <= size_) {
    got = std::min<uint64_t>(bytes.size(), size_ - offset);
    std::copy_n(bytes_.begin() + offset, got, bytes.begin());
  }
  if (got < bytes.size()) throw_end(offset + got, bytes.size() - got);
}

void ByteFile::throw_end(uint64_t offset, uint64_t expected) const {
  throw DataError(
      path_,
      "ends at byte " + std::to_string(offset) + "; expected " +
          std::to_string(expected) +
          " more. The file is truncated, or another program is changing it.");
}

std::vector<uint8_t> ByteFile::read(uint64_t offset, uint64_t size) const {
  // Checked before allocating memory for bytes that do not exist.
  if (offset > size_ || size > size_ - offset) throw_end(size_, size);
  std::vector<uint8_t> bytes(size);
  read(offset, bytes);
  return bytes;
}

std::shared_ptr<uint8_t> ByteFile::map(bool is_writable) const {
  // Private pages count as used memory even before they are written; shared
  // pages do not. A file may be larger than the memory.
  void* const at = ::mmap(
      nullptr,
      size_,
      is_writable ? PROT_READ | PROT_WRITE : PROT_READ,
      is_writable ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED,
      file_->fd(),
      0);
  if (at == MAP_FAILED) throw IoError(path_, "map into memory", errno);
  return {static_cast<uint8_t*>(at), [size = size_](uint8_t* bytes) {
            ::munmap(bytes, size);
          }};
}

}  // namespace tern
