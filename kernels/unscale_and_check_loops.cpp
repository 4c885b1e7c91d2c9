#include "tern/kernels/unscale_and_check_loops.h"

#include "tern/kernels/convert_loops.h"

namespace tern {
namespace {

// A block stays in L1 between the check and the multiplication.
constexpr int64_t kBlock = 2048;

/// An element is not finite if its exponent is all ones, that is if its bits
/// without the sign are at least those of infinity.
template <class Int>
bool reaches(const void* data, int64_t size, Int infinity) {
  const auto* __restrict elements = static_cast<const Int*>(data);
  const Int magnitude =
      static_cast<Int>(~(static_cast<Int>(1) << (8 * sizeof(Int) - 1)));
  Int largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    const Int bits = static_cast<Int>(elements[i] & magnitude);
    largest = bits > largest ? bits : largest;
  }
  return largest >= infinity;
}

bool block_has_non_finite(const void* data, ElementType type, int64_t size) {
  switch (type) {
    case ElementType::float32:
      return reaches<int32_t>(data, size, 0x7F800000);
    case ElementType::float64:
      return reaches<int64_t>(data, size, 0x7FF0000000000000);
    case ElementType::float16:
      return reaches<int16_t>(data, size, 0x7C00);
    case ElementType::bfloat16:
      return reaches<int16_t>(data, size, 0x7F80);
  }
  __builtin_unreachable();
}

template <class T>
void multiply(void* data, int64_t size, T factor) {
  auto* __restrict elements = static_cast<T*>(data);
  for (int64_t i = 0; i < size; ++i) {
    elements[i] *= factor;
  }
}

void multiply_block(void* data, ElementType type, int64_t size, float factor) {
  if (type == ElementType::float32) {
    multiply<float>(data, size, factor);
  } else if (type == ElementType::float64) {
    multiply<double>(data, size, factor);
  } else {
    alignas(64) float buffer[kBlock];
    to_floats(data, type, buffer, size);
    multiply<float>(buffer, size, factor);
    from_floats(buffer, data, type, size);
  }
}

bool has_non_finite(const void* data, ElementType type, int64_t size) {
  const auto* bytes = static_cast<const char*>(data);
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t block = size - i < kBlock ? size - i : kBlock;
    if (block_has_non_finite(bytes + i * size_in_bytes(type), type, block)) {
      return true;
    }
  }
  return false;
}

bool unscale_and_check(
    void* data,
    ElementType type,
    int64_t size,
    float inv_scale) {
  auto* bytes = static_cast<char*>(data);
  bool found = false;
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t block = size - i < kBlock ? size - i : kBlock;
    char* from = bytes + i * size_in_bytes(type);
    found |= block_has_non_finite(from, type, block);
    multiply_block(from, type, block, inv_scale);
  }
  return found;
}

}  // namespace

namespace TERN_CPU_ISA {
extern const UnscaleLoops unscale_loops = {&has_non_finite, &unscale_and_check};
}

}  // namespace tern
