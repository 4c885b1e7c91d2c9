#include "tern/data/formats/weights/stored_tensor.h"

#include <algorithm>
#include <array>

namespace tern {

namespace {

constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr size_t kMaxRank = 64;  // LibTorch's limit

constexpr std::array<StoredTypeInfo, 17> kTypes = {{
    {StoredType::boolean, 1, "BOOL", "BoolStorage", "bool"},
    {StoredType::uint8, 1, "U8", "ByteStorage", "uint8"},
    {StoredType::int8, 1, "I8", "CharStorage", "int8"},
    {StoredType::uint16, 2, "U16", "", "uint16"},
    {StoredType::int16, 2, "I16", "ShortStorage", "int16"},
    {StoredType::uint32, 4, "U32", "", "uint32"},
    {StoredType::int32, 4, "I32", "IntStorage", "int32"},
    {StoredType::uint64, 8, "U64", "", "uint64"},
    {StoredType::int64, 8, "I64", "LongStorage", "int64"},
    {StoredType::float8_e4m3, 1, "F8_E4M3", "", "float8_e4m3fn"},
    {StoredType::float8_e5m2, 1, "F8_E5M2", "", "float8_e5m2"},
    {StoredType::float16, 2, "F16", "HalfStorage", "float16"},
    {StoredType::bfloat16, 2, "BF16", "BFloat16Storage", "bfloat16"},
    {StoredType::float32, 4, "F32", "FloatStorage", "float32"},
    {StoredType::float64, 8, "F64", "DoubleStorage", "float64"},
    {StoredType::complex64, 8, "C64", "ComplexFloatStorage", "complex64"},
    {StoredType::complex128, 16, "", "ComplexDoubleStorage", "complex128"},
}};

}  // namespace

const StoredTypeInfo& info_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)];
}

std::optional<StoredType> type_named(
    std::string_view StoredTypeInfo::*format,
    std::string_view name) {
  for (const StoredTypeInfo& info : kTypes) {
    if (info.*format == name && !name.empty()) return info.type;
  }
  return std::nullopt;
}

std::optional<int64_t> element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    // A later zero must not hide an overflow.
    if (size < 0 || __builtin_mul_overflow(count, size, &count) ||
        count > kMaxElements) {
      return std::nullopt;
    }
  }
  return count;
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

std::string view_fault(const StoredTensor& tensor, uint64_t storage_bytes) {
  if (tensor.shape.size() > kMaxRank) return "has more than 64 dimensions";
  if (tensor.strides.size() != tensor.shape.size()) {
    return "has " + std::to_string(tensor.strides.size()) + " strides for " +
           std::to_string(tensor.shape.size()) + " dimensions";
  }
  const std::optional<int64_t> count = element_count(tensor.shape);
  if (!count) return "has a negative size, or more than 2^40 elements";
  int64_t last = tensor.offset;
  bool is_outside = last < 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    int64_t reach = 0;
    if (tensor.strides[i] < 0) return "has a negative stride";
    is_outside |= *count > 0 && (__builtin_mul_overflow(
                                     tensor.shape[i] - 1,
                                     tensor.strides[i],
                                     &reach) ||
                                 __builtin_add_overflow(last, reach, &last));
  }
  const uint64_t held = storage_bytes / info_of(tensor.type).bytes;
  const uint64_t needed = static_cast<uint64_t>(last) + (*count > 0 ? 1 : 0);
  if (is_outside || needed > held) {
    return "reaches beyond the " + std::to_string(held) +
           " elements of its storage";
  }
  return "";
}

}  // namespace tern
