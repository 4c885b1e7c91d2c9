#include "tern/kernels/convert_loops.h"
#include "tern/kernels/unscale_and_check_math.h"

namespace tern {
namespace {

/// Where a type keeps sign and exponent.
struct Float32 {
  using Bits = int32_t;
  static constexpr Bits kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000;
};
struct Float64 {
  using Bits = int64_t;
  static constexpr Bits kMagnitude = 0x7FFFFFFFFFFFFFFF,
                        kInfinity = 0x7FF0000000000000;
};
struct Float16 {
  using Bits = int16_t;
  static constexpr Bits kMagnitude = 0x7FFF, kInfinity = 0x7C00;
};
struct BFloat16 {
  using Bits = int16_t;
  static constexpr Bits kMagnitude = 0x7FFF, kInfinity = 0x7F80;
};

/// An element is not finite if its exponent is all ones, that is if its bits
/// without the sign are at least those of infinity.
template <class Type>
bool block_has_non_finite(const void* data, int64_t size) {
  using Bits = typename Type::Bits;
  const auto* __restrict elements = static_cast<const Bits*>(data);
  Bits largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    const Bits bits = static_cast<Bits>(elements[i] & Type::kMagnitude);
    largest = bits > largest ? bits : largest;
  }
  return largest >= Type::kInfinity;
}

/// Blocks keep the early end near; long enough that starting one is free.
constexpr int64_t kBlock = 4096;

template <class Type>
bool any_block_has_non_finite(const void* data, int64_t size) {
  const auto* elements = static_cast<const typename Type::Bits*>(data);
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t block = size - i < kBlock ? size - i : kBlock;
    if (block_has_non_finite<Type>(elements + i, block)) {
      return true;
    }
  }
  return false;
}

template <class Type, class T>
bool unscale(void* data, int64_t size, T factor) {
  using Bits = typename Type::Bits;
  auto* __restrict elements = static_cast<T*>(data);
  Bits largest = 0;
  for (int64_t i = 0; i < size; ++i) {
    const T value = elements[i];
    const Bits bits = __builtin_bit_cast(Bits, value) & Type::kMagnitude;
    largest = bits > largest ? bits : largest;
    elements[i] = value * factor;
  }
  return largest >= Type::kInfinity;
}

/// Halves are multiplied as floats; a block stays in L1 on the way.
template <class Type>
bool unscale_halves(void* data, ElementType type, int64_t size, float factor) {
  alignas(64) float buffer[kBlock];
  auto* elements = static_cast<uint16_t*>(data);
  bool found = false;
  for (int64_t i = 0; i < size; i += kBlock) {
    const int64_t block = size - i < kBlock ? size - i : kBlock;
    found |= block_has_non_finite<Type>(elements + i, block);
    to_floats(elements + i, type, buffer, block);
    for (int64_t j = 0; j < block; ++j) {
      buffer[j] *= factor;
    }
    from_floats(buffer, elements + i, type, block);
  }
  return found;
}

bool has_non_finite(const void* data, ElementType type, int64_t size) {
  switch (type) {
    case ElementType::float32:
      return any_block_has_non_finite<Float32>(data, size);
    case ElementType::float64:
      return any_block_has_non_finite<Float64>(data, size);
    case ElementType::float16:
      return any_block_has_non_finite<Float16>(data, size);
    case ElementType::bfloat16:
      return any_block_has_non_finite<BFloat16>(data, size);
  }
  __builtin_unreachable();
}

bool unscale_and_check(
    void* data,
    ElementType type,
    int64_t size,
    float inv_scale) {
  switch (type) {
    case ElementType::float32:
      return unscale<Float32, float>(data, size, inv_scale);
    case ElementType::float64:
      return unscale<Float64, double>(data, size, inv_scale);
    case ElementType::float16:
      return unscale_halves<Float16>(data, type, size, inv_scale);
    case ElementType::bfloat16:
      return unscale_halves<BFloat16>(data, type, size, inv_scale);
  }
  __builtin_unreachable();
}

}  // namespace

namespace TERN_CPU_ISA {
extern const UnscaleLoops unscale_loops = {&has_non_finite, &unscale_and_check};
}

}  // namespace tern
