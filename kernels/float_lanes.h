#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"

namespace tern {

/// Sixteen floats that an inner loop processes at once: one vector of AVX-512,
/// two of AVX2, four of the baseline. Functions take them by address, because
/// the calling convention for passing them by value depends on the instruction
/// set.
using Floats = float __attribute__((vector_size(64)));
constexpr int64_t kLanes = sizeof(Floats) / sizeof(float);

TERN_CPU_LOOP void load_floats(const float* from, Floats& to) {
  __builtin_memcpy(&to, from, sizeof to);
}

TERN_CPU_LOOP void store_floats(const Floats& from, float* to) {
  __builtin_memcpy(to, &from, sizeof from);
}

TERN_CPU_LOOP void fill_floats(float value, Floats& to) {
  to = value - Floats{};  // Clang has no other conversion; +0 would lose -0
}

/// Loads bfloat16.
TERN_CPU_LOOP void load_floats(const uint16_t* from, Floats& to) {
  using Words = uint32_t __attribute__((vector_size(64)));
  using Halves = uint16_t __attribute__((vector_size(32)));
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof halves);
  const Words words = __builtin_convertvector(halves, Words) << 16U;
  __builtin_memcpy(&to, &words, sizeof to);
}

/// Stores as bfloat16, rounded to nearest, ties to even; a NaN stays NaN.
TERN_CPU_LOOP void store_floats(const Floats& from, uint16_t* to) {
  using Words = uint32_t __attribute__((vector_size(64)));
  using Halves = uint16_t __attribute__((vector_size(32)));
  Words words;
  __builtin_memcpy(&words, &from, sizeof words);
  const Words rounded = (words + 0x7FFFU + ((words >> 16U) & 1U)) >> 16U;
  const Words nan = (words >> 16U) | 0x40U;
  const Halves halves = __builtin_convertvector(
      (words & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded,
      Halves);
  __builtin_memcpy(to, &halves, sizeof halves);
}

}  // namespace tern
