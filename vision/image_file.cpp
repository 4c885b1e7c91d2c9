#include "tern/vision/image_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {
namespace {

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode)    ? "a folder"
         : S_ISFIFO(mode) ? "a pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

int open_without_blocking(const char* path) {
  int fd = -1;
  do {
    fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

}  // namespace

std::span<const uint8_t> read_image_file(
    const std::string& path,
    ScratchBuffer& buffer,
    int64_t max_bytes) {
  const FileHandle file(open_without_blocking(path.c_str()));
  struct stat status {};
  if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0) {
    throw IoError(path, "open the image", errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw DataError(
        path,
        std::string("is ") + kind_of(status.st_mode) +
            ", not an image file. Remove or rename it.");
  }
  if (status.st_size > max_bytes) {
    throw DataError(
        path,
        "has " + std::to_string(status.st_size) +
            " bytes, more than the limit of " + std::to_string(max_bytes) +
            " for an image. Remove the file, or raise max_bytes if you trust "
            "it.");
  }
  const auto size = static_cast<size_t>(status.st_size);
  // Never less than 64 KiB: a set of small images then keeps one buffer.
  uint8_t* bytes = buffer.get(std::max<size_t>(size, 64 << 10));
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.fd(), bytes + done, size - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      throw IoError(path, "read the image", errno);
    }
    if (count == 0) {
      throw DataError(
          path,
          "became shorter while it was read. Try again when no other program "
          "writes to it.");
    }
    done += static_cast<size_t>(count);
  }
  return {bytes, size};
}

}  // namespace tern
