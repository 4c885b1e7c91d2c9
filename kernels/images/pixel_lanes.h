#pragma once

#include <cstdint>

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "tern/kernels/cpu_isa.h"

// Loops over RGB pixels that compilers do not vectorize, in one source for AVX2
// and NEON. A pixel's three channels are adjacent in one vector; the vectors
// are GCC's and Clang's built-in types, with operators + | << >>.
#if defined(__x86_64__) || defined(__aarch64__)
#define TERN_HAS_PIXEL_LANES

#ifdef __x86_64__
#define TERN_PIXEL_LOOP TERN_AVX2
#else
#define TERN_PIXEL_LOOP
#endif

namespace tern {

using Lanes = uint32_t __attribute__((vector_size(16)));
using ByteLanes = uint8_t __attribute__((vector_size(16)));

/// True if `cpu_isa()` supports pixel lanes.
inline bool has_pixel_lanes() {
  return cpu_isa() != CpuIsa::baseline;
}

TERN_CPU_LOOP ByteLanes load_16_bytes(const void* from) {
  ByteLanes lanes;
  __builtin_memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

/// Loads 8 bytes, followed by zeros.
TERN_CPU_LOOP ByteLanes load_8_bytes(const void* from) {
  uint64_t bytes = 0;
  __builtin_memcpy(&bytes, from, sizeof bytes);
  using Halves = uint64_t __attribute__((vector_size(16)));
  return reinterpret_cast<ByteLanes>(Halves{bytes, 0});
}

/// Returns, for each lane, the product of the low halves plus the product of
/// the high halves, as signed numbers.
TERN_CPU_LOOP Lanes dot_of_halves(Lanes a, Lanes b) {
#ifdef __x86_64__
  return reinterpret_cast<Lanes>(_mm_madd_epi16(
      reinterpret_cast<__m128i>(a),
      reinterpret_cast<__m128i>(b)));
#else
  const auto x = reinterpret_cast<int16x8_t>(a);
  const auto y = reinterpret_cast<int16x8_t>(b);
  return reinterpret_cast<Lanes>(vpaddq_s32(
      vmull_s16(vget_low_s16(x), vget_low_s16(y)),
      vmull_high_s16(x, y)));
#endif
}

/// Writes the lowest byte of each of the four lanes.
TERN_CPU_LOOP void store_low_bytes(Lanes lanes, uint8_t* to) {
  const auto bytes = reinterpret_cast<ByteLanes>(lanes);
  const auto packed = reinterpret_cast<Lanes>(__builtin_shufflevector(
      bytes,
      bytes,
      0,
      4,
      8,
      12,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1,
      -1));
  const uint32_t pixel = packed[0];
  __builtin_memcpy(to, &pixel, sizeof pixel);
}

}  // namespace tern
#endif
