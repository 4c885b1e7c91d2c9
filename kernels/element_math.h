#pragma once

#include <cstdint>

// What the CPU and the CUDA kernels share. The macro marks arithmetic of both;
// everything has internal linkage, for some of the files that include this are
// compiled for several instruction sets.
#ifdef __CUDACC__
#define TERN_ELEMENT_MATH static __host__ __device__ __forceinline__
#else
#define TERN_ELEMENT_MATH static inline __attribute__((always_inline))
#endif

namespace tern {

/// c10::ScalarType for the files that include nothing of LibTorch.
enum class ElementType : int32_t { float32, float64, float16, bfloat16 };

static constexpr int64_t size_in_bytes(ElementType type) {
  switch (type) {
    case ElementType::float64:
      return 8;
    case ElementType::float32:
      return 4;
    default:
      return 2;
  }
}

/// Padding mode beyond the edge of an image: black, its outermost pixels, or
/// the image mirrored at the edge.
enum class Padding { zeros, border, reflection };

/// A rectangle of an image that is erased.
struct PaintedRectangle {
  int32_t top = 0, left = 0, bottom = 0, right = 0;
  uint32_t noise_key = 0;
  /// Random bytes instead of `value`.
  bool noise = false;
  uint8_t value = 0;
};

/// A hash of three numbers, for random shifts without a generator's state.
TERN_ELEMENT_MATH uint32_t hash_of(uint32_t key, uint32_t y, uint32_t x) {
  uint32_t h = key ^ (x * 0x9E3779B9u) ^ (y * 0x85EBCA6Bu);
  h = (h ^ (h >> 16)) * 0x7FEB352Du;
  h = (h ^ (h >> 15)) * 0x846CA68Bu;
  return h ^ (h >> 16);
}

/// 16 bits to -1..1.
TERN_ELEMENT_MATH float jitter_of(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits & 0xffff) - 32768) /
         32768.f;
}

}  // namespace tern
