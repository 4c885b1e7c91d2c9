#include "tern/data/formats/weights/weight_file.h"

#include <algorithm>
#include <string_view>
#include <zlib.h>

#include "tern/data/formats/error.h"
#include "tern/data/formats/weights/pth.h"
#include "tern/data/formats/weights/safetensors.h"

namespace tern {

namespace {

constexpr size_t kChunk = size_t{1} << 20;  // fits into the processor's cache

// Guesses the type of a file that is not a weight file.
const char* guess(std::string_view head) {
  if (head.empty()) return "is empty";
  if (head.starts_with("version https://git-lfs")) {
    return "is a Git LFS pointer, whose content was not downloaded (git lfs "
           "pull)";
  }
  if (head.starts_with("\x1f\x8b")) return "is gzip-compressed; unpack it";
  if (head.starts_with("\x89HDF")) return "is an HDF5 file (Keras)";
  const size_t text = head.find_first_not_of(" \t\r\n");
  if (text != head.npos && head[text] == '<') {
    return "is a web page, which the server sent in place of the file";
  }
  return "does not start like a weight file";
}

[[noreturn]] void throw_checksum(const ByteFile& file) {
  throw DataError(
      file.path(),
      "has a tensor with a wrong checksum (CRC-32). The file is damaged. "
      "Download or save it again.");
}

}  // namespace

StoredWeights read_weight_header(const ByteFile& file, const std::string& key) {
  if (is_safetensors(file)) {
    if (key.empty()) return read_safetensors_header(file);
    throw DataError(
        file.path(),
        "is a safetensors file, which holds tensors but no dictionaries. Omit "
        "the key.");
  }
  if (is_pth(file)) return read_pth(file, key);
  const auto head = file.read(0, std::min<uint64_t>(file.size(), 64));
  throw DataError(
      file.path(),
      std::string(guess(as_text(head))) +
          "; expected a safetensors file, or a file written by Python's "
          "torch.save.");
}

void read_storage(
    const ByteFile& file,
    const StoredBytes& storage,
    std::span<uint8_t> bytes) {
  uLong crc = 0;
  for (size_t done = 0; done < bytes.size(); done += kChunk) {
    const auto chunk =
        bytes.subspan(done, std::min(kChunk, bytes.size() - done));
    file.read(storage.begin + done, chunk);
    if (storage.crc32) crc = crc32_z(crc, chunk.data(), chunk.size());
  }
  if (storage.crc32 && crc != *storage.crc32) throw_checksum(file);
}

void check_storage(
    const ByteFile& file,
    const StoredBytes& storage,
    std::span<const uint8_t> bytes) {
  if (storage.crc32 &&
      crc32_z(0, bytes.data(), bytes.size()) != *storage.crc32) {
    throw_checksum(file);
  }
}

}  // namespace tern
