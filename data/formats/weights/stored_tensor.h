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

/// What the formats call a type; empty where a format has no name for it.
struct StoredTypeInfo {
  StoredType type;
  uint8_t bytes;
  std::string_view safetensors;  // "F32"
  std::string_view storage;      // "FloatStorage", of Python's torch
  std::string_view dtype;        // "float32", of Python's torch
};

const StoredTypeInfo& info_of(StoredType type);
/// The type that a format calls so:
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
  size_t storage = 0;                 // which one holds it
  int64_t offset = 0;                 // of its first element there, in elements
  bool conj = false, neg = false;     // stands for the conjugate, the negative
};

/// A run of bytes of a weight file that one tensor or several views hold.
struct StoredBytes {
  uint64_t begin = 0;  // in the file
  uint64_t size = 0;
  std::optional<uint32_t> crc32 = {};  // what its bytes must have
};

/// What a weight file says of its tensors; their bytes stay in the file. Every
/// storage lies inside the file, and every tensor inside its storage.
struct StoredWeights {
  std::vector<StoredTensor> tensors;
  std::vector<StoredBytes> storages;
  std::map<std::string, std::string> metadata;
};

/// Number of elements; nothing if a size is negative or there are more than
/// 2^40.
std::optional<int64_t> element_count(const std::vector<int64_t>& shape);

/// Strides of a contiguous tensor of a shape that has an element count.
std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape);

/// What is wrong with the tensor as a view of a storage of `storage_bytes`;
/// empty if every element lies inside.
std::string view_fault(const StoredTensor& tensor, uint64_t storage_bytes);

}  // namespace tern
