#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// An array of bytes from a file in the IDX format, MNIST's own.
struct IdxArray {
  /// Its shape: {60000, 28, 28} for images, {60000} for labels.
  std::vector<int64_t> dims;
  /// Its elements, the last index fastest: a view of the bytes parsed.
  std::span<const uint8_t> values;
};

/// Parses an IDX file of unsigned bytes: two zeros, the type 0x08, the number
/// of dimensions, a big-endian uint32 for each, and exactly as many bytes as
/// their product says. Allocates nothing but `dims`. The format has no
/// checksums: a flipped bit of an element is another value.
///
/// \param path  For error messages.
/// \throws DataError naming what was found and what was expected.
///
/// Source: yann.lecun.com/exdb/mnist, "the IDX file format".
IdxArray parse_idx(std::span<const uint8_t> bytes, const std::string& path);

/// An IDX file and the bytes that it views.
struct IdxFile {
  std::vector<uint8_t> bytes;
  IdxArray array;
};

/// Reads an IDX file, plain or gzipped, whichever its content is.
/// \throws DataError as `parse_idx`, or if it has more than `max_bytes` after
///         inflating; IoError.
IdxFile read_idx(
    const std::filesystem::path& path,
    int64_t max_bytes = int64_t{4} << 30);

}  // namespace tern
