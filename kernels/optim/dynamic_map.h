#pragma once

#include <cstdint>
#include <math.h>
#include <string.h>

#include "tern/kernels/kernel_args.h"

// Moments in 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise
// Quantization"). A block of 256 elements stores its largest magnitude as a
// float, then one byte per element: the nearest value of the dynamic map, in
// units of that magnitude. The map contains 0, 1 and seven decades below 1,
// each with twice as many values as the decade below it, at the centers of
// equal intervals. It is bitsandbytes' map. Shared by the CPU and the CUDA
// kernels.
namespace tern {

constexpr int64_t kMapBlock = 256;
constexpr int64_t kMapBlockBytes = sizeof(float) + kMapBlock;

constexpr int64_t moment_8bit_bytes(int64_t size) {
  return (size + kMapBlock - 1) / kMapBlock * kMapBlockBytes;
}

/// Returns element i's block: the magnitude, then the codes.
template <class Bytes>
TERN_ELEMENT_MATH Bytes* map_block(Bytes* moment, int64_t i) {
  return moment + i / kMapBlock * kMapBlockBytes;
}

/// Number of values in the lowest decade; the unsigned map has more.
TERN_ELEMENT_MATH float lowest_values(bool is_signed) {
  return is_signed ? 1.f : 2.f;
}

/// \param code  0 to 255.
/// \return -1 to 1, or 0 to 1.
TERN_ELEMENT_MATH float decode_8bit(int32_t code, bool is_signed) {
  const float lowest = lowest_values(is_signed);
  const bool is_negative = is_signed && code < 127;
  const int32_t index =
      !is_signed ? code : (is_negative ? 127 - code : code - 127);
  const float at = static_cast<float>(index - 1) + lowest;
  float values = lowest, end = 1e-6f;  // of the decade
  for (int decade = 1; decade < 7; ++decade) {
    const bool is_above = at >= 2 * values;
    values = is_above ? 2 * values : values;
    end = is_above ? 10 * end : end;
  }
  float size = end * (0.1f + 0.9f * (at - values + 0.5f) / values);
  if (index == 0) size = 0;
  if (at >= 128 * lowest) size = 1;
  return is_negative ? -size : size;
}

/// Returns the code of the nearest value. In the unsigned map only 0 becomes 0,
/// because the result is used as a divisor.
/// \param value  -1 to 1, or 0 to 1; values beyond that, and NaN, count as 1.
TERN_ELEMENT_MATH int32_t encode_8bit(float value, bool is_signed) {
  const float lowest = lowest_values(is_signed);
  const bool is_negative = is_signed && value < 0;
  float size = is_negative ? -value : value;
  size = size < 1 ? size : 1;
  float values = lowest, density = lowest / 0.9e-6f;  // of the decade
  float begin = 1e-7f, next = lowest;
  for (int decade = 1; decade < 7; ++decade) {
    begin *= 10;
    next *= 2;
    // The midpoint between the last value of the decade below and the first
    // of this one.
    const bool is_above = size >= begin * (1 + 1.8f / next);
    values = is_above ? next : values;
    density = is_above ? next / (9 * begin) : density;
  }
  const auto count = static_cast<int32_t>(values);
  const auto place = static_cast<int32_t>(size * density - values / 9);
  int32_t index = 1 + count - static_cast<int32_t>(lowest) +
                  (place < count ? place : count - 1);
  const float smallest = 1e-6f * (0.1f + 0.45f / lowest);
  if (size < smallest / 2) index = is_signed || size == 0 ? 0 : 1;
  // The largest value has no negative counterpart.
  const float top = 1 - 0.225f / (64 * lowest);
  if (size >= top && !is_negative) index = is_signed ? 128 : 255;
  return !is_signed ? index : (is_negative ? 127 - index : 127 + index);
}

/// Returns bits that sort like the magnitudes, with NaN above all.
TERN_ELEMENT_MATH uint32_t magnitude_bits(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits & 0x7FFFFFFFu;
}

TERN_ELEMENT_MATH float magnitude_of(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Divisor for the values of a block before `encode_8bit`.
TERN_ELEMENT_MATH float divisor_8bit(float magnitude) {
  return magnitude > 0 ? magnitude : 1;
}

}  // namespace tern
