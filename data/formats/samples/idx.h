#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// An array of bytes from a file in IDX, the format of MNIST.
struct IdxArray {
  /// Its shape: {60000, 28, 28} for images, {60000} for labels.
  std::vector<int64_t> dims;
  /// The elements in row-major order: a view of the parsed bytes.
  std::span<const uint8_t> values;
};

/// Parses an IDX file of unsigned bytes: two zeros, the type 0x08, the number
/// of dimensions, a big-endian uint32 for the size of each, and exactly as many
/// bytes as the product of the sizes. Allocates only `dims`. The format has no
/// checksums, so a flipped bit in an element is not detected.
///
/// \param path  For error messages.
/// \throws DataError with what was found and what was expected.
///
/// Source: yann.lecun.com/exdb/mnist, "the IDX file format".
IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& path);

/// An IDX file and the bytes that its array views.
struct IdxFile {
  std::vector<uint8_t> bytes;
  IdxArray array;
};

/// Reads an IDX file, plain or gzipped, as detected from its content.
/// \throws the errors of `parse_idx`; DataError if it has more than `max_bytes`
///         bytes after decompression; IoError.
IdxFile read_idx(
    const std::filesystem::path& path,
    int64_t max_bytes = int64_t{4} << 30);

}  // namespace tern
