#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tern {

/// Type of a tensor's elements in a weight file; little-endian.
enum class StoredType : uint8_t {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  uint64,
  int64,
  float8_e4m3,
  float8_e5m2,
  float16,
  bfloat16,
  float32,
  float64,
  complex64,
  complex128,
};

/// The names of a dtype in each format; empty if a format does not have the
/// dtype.
struct StoredTypeInfo {
  StoredType type;
  uint8_t bytes;
  std::string_view safetensors;  // "F32"
  std::string_view storage;      // "FloatStorage", of Python's torch
  std::string_view dtype;        // "float32", of Python's torch
};

const StoredTypeInfo& info_of(StoredType type);
/// Returns the dtype with this name in a format:
/// `type_named(&StoredTypeInfo::safetensors, "F32")`.
std::optional<StoredType> type_named(
    std::string_view StoredTypeInfo::*format,
    std::string_view name);

/// A tensor of a weight file.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::float32;
  std::vector<int64_t> shape = {};
  std::vector<int64_t> strides = {};  // in elements
  size_t storage = 0;                 // index of its storage
  int64_t offset = 0;                 // of its first element, in elements
  bool conj = false, neg = false;     // a conjugate or negative view
};

/// A range of bytes in a weight file, used by one tensor or several views.
struct StoredBytes {
  uint64_t begin = 0;  // in the file
  uint64_t size = 0;
  std::optional<uint32_t> crc32 = {};  // expected CRC-32 of the bytes
};

/// The tensors described by a weight file; their bytes stay in the file. Every
/// storage is within the file, and every tensor within its storage.
struct StoredWeights {
  std::vector<StoredTensor> tensors;
  std::vector<StoredBytes> storages;
  std::map<std::string, std::string> metadata;
};

/// Returns the number of elements; unset if a size is negative or there are
/// more than 2^40.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape);

/// Returns the strides of a contiguous tensor; the shape must have a valid
/// element count.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);

/// Returns the reason why the tensor is not a valid view of a storage of
/// `storage_bytes`; empty if every element is within it.
std::string view_fault(const StoredTensor& tensor, uint64_t storage_bytes);

}  // namespace tern
