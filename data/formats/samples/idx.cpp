#include "tern/data/formats/samples/idx.h"

#include <algorithm>

#include "tern/data/formats/archives/gzip.h"
#include "tern/data/formats/bytes.h"
#include "tern/data/formats/error.h"
#include "tern/data/formats/text.h"

namespace tern {

namespace {

constexpr uint8_t kUnsignedByte = 0x08;
constexpr int64_t kMaxValues = int64_t{1} << 40;

void check_magic(std::span<const uint8_t> bytes, const std::string& path) {
  const auto magic = bytes.first(std::min<size_t>(4, bytes.size()));
  if (magic.size() < 4 || magic[0] != 0 || magic[1] != 0 ||
      magic[2] != kUnsignedByte || magic[3] == 0) {
    throw DataError(
        path,
        (magic.empty()
             ? "is empty"
             : "begins with the bytes " + hex_digits(as_text(magic))) +
            "; expected 000008 and the number of dimensions, the start of an "
            "IDX file of unsigned bytes. Download or convert it.");
  }
}

}  // namespace

IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& path) {
  check_magic(bytes, path);
  const size_t rank = bytes[3];
  const size_t header = 4 + 4 * rank;
  if (bytes.size() < header) {
    throw DataError(
        path,
        "has " + std::to_string(bytes.size()) +
            " bytes; expected a header of " + std::to_string(header) +
            " for its " + std::to_string(rank) +
            " dimensions. The file is truncated.");
  }

  IdxArray array;
  int64_t count = 1;
  std::string shape;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t dim = load_be32(&bytes[4 + 4 * i]);
    array.dims.push_back(dim);
    shape += (i == 0 ? "" : ", ") + std::to_string(dim);
    // A later zero must not hide an overflow.
    if (__builtin_mul_overflow(count, dim, &count) || count > kMaxValues) {
      throw DataError(
          path,
          "has a shape that begins with [" + shape +
              "], which is more than 2^40 values. The header is damaged.");
    }
  }

  array.values = bytes.subspan(header);
  const auto actual = static_cast<int64_t>(array.values.size());
  if (actual != count) {
    throw DataError(
        path,
        "has " + std::to_string(actual) + " values; its shape [" + shape +
            "] expects " + std::to_string(count) +
            (actual < count ? ". The file is truncated." : "."));
  }
  return array;
}

IdxFile read_idx(const std::filesystem::path& path, int64_t max_bytes) {
  IdxFile file;
  file.bytes = gunzip(ByteFile(path), max_bytes);
  file.array = parse_idx(file.bytes, path.string());
  return file;
}

}  // namespace tern
