#include "tern/vision/decode/image_file.h"

#include <algorithm>
#include <string>

#include "tern/data/formats/error.h"
#include "tern/data/formats/file_io.h"

namespace tern {

std::span<const uint8_t> read_image_file(
    const std::string& path,
    ScratchBuffer& buffer,
    int64_t max_bytes) {
  const FileHandle file = open_regular_file(path);
  const int64_t size = file_size(file, path);
  if (size > max_bytes) {
    throw DataError(
        path,
        "has " + std::to_string(size) + " bytes, more than the limit of " +
            std::to_string(max_bytes) +
            " for an image. Remove the file, or raise max_bytes if you trust "
            "it.");
  }
  // Never less than 64 KiB: a set of small images then keeps one buffer.
  const std::span<uint8_t> bytes(
      buffer.get(static_cast<size_t>(std::max<int64_t>(size, 64 << 10))),
      static_cast<size_t>(size));
  if (read_up_to(file, bytes, path) < bytes.size()) {
    throw DataError(
        path,
        "became shorter while it was read. Try again when no other program "
        "writes to it.");
  }
  return bytes;
}

}  // namespace tern
