#include "tern/data/formats/byte_file.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>

#include "tern/data/formats/error.h"

namespace tern {

ByteFile::ByteFile(const std::filesystem::path& path)
    : path_(path.string()),
      file_(std::make_shared<FileHandle>(open_regular_file(path))),
      size_(static_cast<uint64_t>(file_size(*file_, path))) {}

ByteFile::ByteFile(std::span<const uint8_t> bytes, std::string path)
    : path_(std::move(path)), bytes_(bytes), size_(bytes.size()) {}

void ByteFile::read(uint64_t offset, std::span<uint8_t> bytes) const {
  size_t got = 0;
  if (file_) {
    got = read_up_to_at(*file_, offset, bytes, path_);
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
          " more. The file is cut off, or another program changes it");
}

std::vector<uint8_t> ByteFile::read(uint64_t offset, uint64_t size) const {
  // Before memory is taken for what is not there.
  if (offset > size_ || size > size_ - offset) throw_end(size_, size);
  std::vector<uint8_t> bytes(size);
  read(offset, bytes);
  return bytes;
}

std::shared_ptr<uint8_t> ByteFile::map() const {
  void* const at = ::mmap(
      nullptr,
      size_,
      PROT_READ | PROT_WRITE,
      MAP_PRIVATE,
      file_->fd(),
      0);
  if (at == MAP_FAILED) throw IoError(path_, "map into memory", errno);
  return {static_cast<uint8_t*>(at), [size = size_](uint8_t* bytes) {
            ::munmap(bytes, size);
          }};
}

}  // namespace tern
