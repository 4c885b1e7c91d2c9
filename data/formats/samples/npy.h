#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// An array from a file of NumPy's `save`.
struct NpyArray {
  /// What an element is: 'b' truth value, 'i' signed and 'u' unsigned whole
  /// number, 'f' floating, 'c' complex number.
  char kind = 'f';
  /// Bytes of an element, little-endian: 4 for float32.
  int64_t item_bytes = 4;
  /// {} for a single number.
  std::vector<int64_t> shape;
  /// The elements, the last index fastest: a view of the bytes parsed.
  std::span<const uint8_t> values;
};

/// Parses a .npy file, version 1, 2 or 3. The format has no checksums: a
/// flipped bit of an element is another value.
///
/// \param path  For error messages.
/// \throws DataError if it is damaged or cut off, or its array is big-endian,
///         in Fortran's order, of records, strings or Python objects.
///
/// Source: numpy.org, "numpy.lib.format".
NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace tern
