#pragma once

#include <cstdint>

#include "tern/kernels/element_math.h"

namespace tern {

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
