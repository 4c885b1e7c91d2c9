#pragma once

#include <cstdint>
#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "tern/kernels/element_math.h"

// Conversions for the `*_loops.cpp` files, each of which is compiled for
// several instruction sets. Everything here has internal linkage, so that the
// linker cannot give the AVX-512 copy to a processor without it. All copies
// round to nearest, ties to even, and give the same bits, NaNs included.
namespace tern {
namespace {

inline uint32_t bits_of(float value) {
  return __builtin_bit_cast(uint32_t, value);
}

inline float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

inline float half_to_float(uint16_t half) {
  const uint32_t word = static_cast<uint32_t>(half) << 16;
  const uint32_t twice = word + word;
  // A half's exponent counts from 15, a float's from 127: 2^-112 apart.
  const float normal = float_of((twice >> 4) + (0xE0U << 23)) * 0x1p-112f;
  const float subnormal = float_of((twice >> 17) | (126U << 23)) - 0.5f;
  const float magnitude = twice < (1U << 27) ? subnormal : normal;
  return float_of((word & 0x80000000U) | bits_of(magnitude));
}

inline uint16_t float_to_half(float value) {
  const uint32_t word = bits_of(value);
  const uint32_t twice = word + word;
  // Out and back in again: what does not fit a half becomes infinity.
  float base = (float_of(word & 0x7FFFFFFFU) * 0x1p+112f) * 0x1p-110f;
  uint32_t bias = twice & 0xFF000000U;
  bias = bias < 0x71000000U ? 0x71000000U : bias;
  // The addition rounds: it pushes the bits below a half's last one out.
  base = float_of((bias >> 1) + 0x07800000U) + base;
  const uint32_t bits = bits_of(base);
  const uint32_t finite = ((bits >> 13) & 0x7C00U) + (bits & 0x0FFFU);
  const uint32_t nan = 0x7E00U | ((word >> 13) & 0x03FFU);
  return static_cast<uint16_t>(
      ((word >> 16) & 0x8000U) | (twice > 0xFF000000U ? nan : finite));
}

inline float bfloat16_to_float(uint16_t value) {
  return float_of(static_cast<uint32_t>(value) << 16);
}

inline uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000U : rounded) >> 16);
}

inline void halves_to_floats(
    const uint16_t* __restrict src,
    float* __restrict dst,
    int64_t size) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= size; i += 16) {
    const void* from = src + i;
    _mm512_storeu_ps(
        dst + i,
        _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(from))));
  }
#elif defined(__F16C__)
  for (; i + 8 <= size; i += 8) {
    const void* from = src + i;
    _mm256_storeu_ps(
        dst + i,
        _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
#endif
  for (; i < size; ++i) {
    dst[i] = half_to_float(src[i]);
  }
}

inline void floats_to_halves(
    const float* __restrict src,
    uint16_t* __restrict dst,
    int64_t size) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= size; i += 16) {
    void* to = dst + i;
    _mm256_storeu_si256(
        static_cast<__m256i*>(to),
        _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
#elif defined(__F16C__)
  for (; i + 8 <= size; i += 8) {
    void* to = dst + i;
    _mm_storeu_si128(
        static_cast<__m128i*>(to),
        _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < size; ++i) {
    dst[i] = float_to_half(src[i]);
  }
}

/// `src` is float32, float16 or bfloat16.
inline void to_floats(
    const void* src,
    ElementType type,
    float* __restrict dst,
    int64_t size) {
  if (type == ElementType::float16) {
    halves_to_floats(static_cast<const uint16_t*>(src), dst, size);
  } else if (type == ElementType::bfloat16) {
    const auto* __restrict from = static_cast<const uint16_t*>(src);
    for (int64_t i = 0; i < size; ++i) {
      dst[i] = bfloat16_to_float(from[i]);
    }
  } else {
    const auto* __restrict from = static_cast<const float*>(src);
    for (int64_t i = 0; i < size; ++i) {
      dst[i] = from[i];
    }
  }
}

/// `dst` is float32, float16 or bfloat16.
inline void from_floats(
    const float* __restrict src,
    void* dst,
    ElementType type,
    int64_t size) {
  if (type == ElementType::float16) {
    floats_to_halves(src, static_cast<uint16_t*>(dst), size);
  } else if (type == ElementType::bfloat16) {
    auto* __restrict to = static_cast<uint16_t*>(dst);
    for (int64_t i = 0; i < size; ++i) {
      to[i] = float_to_bfloat16(src[i]);
    }
  } else {
    auto* __restrict to = static_cast<float*>(dst);
    for (int64_t i = 0; i < size; ++i) {
      to[i] = src[i];
    }
  }
}

}  // namespace
}  // namespace tern
