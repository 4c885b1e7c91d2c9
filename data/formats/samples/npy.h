#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// An array from a file written by NumPy's `save`.
struct NpyArray {
  /// Type of the elements: 'b' boolean, 'i' signed and 'u' unsigned integer,
  /// 'f' floating, 'c' complex.
  char kind = 'f';
  /// Bytes per element, little-endian: 4 for float32.
  int64_t item_bytes = 4;
  /// {} for a scalar.
  std::vector<int64_t> shape;
  /// The elements in row-major order: a view of the parsed bytes.
  std::span<const uint8_t> values;
};

/// Parses a .npy file, version 1, 2 or 3. The format has no checksums, so a
/// flipped bit in an element is not detected.
///
/// \param path  For error messages.
/// \throws DataError if it is damaged or truncated, or if its array is
///         big-endian, is in Fortran order, or contains records, strings or
///         Python objects.
///
/// Source: numpy.org, "numpy.lib.format".
NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace tern
