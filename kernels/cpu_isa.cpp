#include "tern/kernels/cpu_isa.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tern {
namespace {

CpuIsa initial_cpu_isa() {
  const CpuIsa best = best_cpu_isa();
  const char* wish = std::getenv("TERN_CPU_ISA");
  if (!wish) return best;
  if (wish == std::string_view("baseline")) return CpuIsa::baseline;
  return wish == std::string_view("avx2") ? std::min(best, CpuIsa::avx2) : best;
}

// Before main it may still be the baseline, which gives the same results.
std::atomic<CpuIsa> isa_in_use = initial_cpu_isa();

// ---- Conversions of a single number ----

TERN_CPU_LOOP float half_to_float(uint16_t half) {
  const uint32_t word = static_cast<uint32_t>(half) << 16;
  const uint32_t twice = word + word;
  // The exponent bias is 15 in fp16 and 127 in float: a factor of 2^-112.
  const float normal =
      std::bit_cast<float>((twice >> 4) + (0xE0U << 23)) * 0x1p-112f;
  const float subnormal =
      std::bit_cast<float>((twice >> 17) | (126U << 23)) - 0.5f;
  const float magnitude = twice < (1U << 27) ? subnormal : normal;
  return std::bit_cast<float>(
      (word & 0x80000000U) | std::bit_cast<uint32_t>(magnitude));
}

TERN_CPU_LOOP uint16_t float_to_half(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t twice = word + word;
  // Scales up and down again: values too large for fp16 become infinity.
  float base =
      (std::bit_cast<float>(word & 0x7FFFFFFFU) * 0x1p+112f) * 0x1p-110f;
  uint32_t bias = twice & 0xFF000000U;
  bias = bias < 0x71000000U ? 0x71000000U : bias;
  // The addition rounds: it shifts out the bits below fp16's last one.
  base = std::bit_cast<float>((bias >> 1) + 0x07800000U) + base;
  const auto bits = std::bit_cast<uint32_t>(base);
  const uint32_t finite = ((bits >> 13) & 0x7C00U) + (bits & 0x0FFFU);
  const uint32_t nan = 0x7E00U | ((word >> 13) & 0x03FFU);
  return static_cast<uint16_t>(
      ((word >> 16) & 0x8000U) | (twice > 0xFF000000U ? nan : finite));
}

TERN_CPU_LOOP float bfloat16_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

TERN_CPU_LOOP uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>((is_nan ? bits | 0x00400000U : rounded) >> 16);
}

template <auto kConvert, class From, class To>
TERN_CPU_LOOP void
convert(const From* __restrict src, To* __restrict dst, int64_t size) {
  for (int64_t i = 0; i < size; ++i) dst[i] = kConvert(src[i]);
}

// Processors with AVX2 convert fp16 in hardware, with the same results.
#ifdef __x86_64__
TERN_AVX2 void
halves_to_floats_avx2(const uint16_t* src, float* dst, int64_t size) {
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const void* from = src + i;
    _mm256_storeu_ps(
        dst + i,
        _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(from))));
  }
  convert<half_to_float>(src + i, dst + i, size - i);
}

TERN_AVX2 void
floats_to_halves_avx2(const float* src, uint16_t* dst, int64_t size) {
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    void* to = dst + i;
    _mm_storeu_si128(
        static_cast<__m128i*>(to),
        _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
  convert<float_to_half>(src + i, dst + i, size - i);
}

TERN_AVX512 void
floats_to_halves_avx512(const float* src, uint16_t* dst, int64_t size) {
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    void* to = dst + i;
    _mm256_storeu_si256(
        static_cast<__m256i*>(to),
        _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  }
  convert<float_to_half>(src + i, dst + i, size - i);
}
#elif defined(__aarch64__)
// Every aarch64 processor converts fp16 in hardware; the compiler vectorizes
// this.
TERN_CPU_LOOP float half_to_float_neon(uint16_t half) {
  return __builtin_bit_cast(__fp16, half);
}

TERN_CPU_LOOP uint16_t float_to_half_neon(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<__fp16>(value));
}
#endif

void halves_to_floats(const uint16_t* src, float* dst, int64_t size) {
#ifdef __x86_64__
  // Wider vectors are not faster here.
  if (cpu_isa() != CpuIsa::baseline) {
    return halves_to_floats_avx2(src, dst, size);
  }
#elif defined(__aarch64__)
  if (cpu_isa() == CpuIsa::neon) {
    return convert<half_to_float_neon>(src, dst, size);
  }
#endif
  convert<half_to_float>(src, dst, size);
}

void floats_to_halves(const float* src, uint16_t* dst, int64_t size) {
#ifdef __x86_64__
  const CpuIsa isa = cpu_isa();
  if (isa == CpuIsa::avx512) return floats_to_halves_avx512(src, dst, size);
  if (isa == CpuIsa::avx2) return floats_to_halves_avx2(src, dst, size);
#elif defined(__aarch64__)
  if (cpu_isa() == CpuIsa::neon) {
    return convert<float_to_half_neon>(src, dst, size);
  }
#endif
  convert<float_to_half>(src, dst, size);
}

}  // namespace

CpuIsa best_cpu_isa() {
#ifdef __x86_64__
  __builtin_cpu_init();
  // The same lists as in TERN_AVX512 and TERN_AVX2.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return CpuIsa::avx512;
  }
  if (__builtin_cpu_supports("avx2")) return CpuIsa::avx2;
#elif defined(__aarch64__)
  return CpuIsa::neon;
#endif
  return CpuIsa::baseline;
}

bool multiplies_bfloat16() {
#ifdef __x86_64__
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;
#endif
}

CpuIsa cpu_isa() {
  return isa_in_use.load(std::memory_order_relaxed);
}

void set_cpu_isa(CpuIsa isa) {
  const CpuIsa best = best_cpu_isa();
  const bool is_foreign = isa == CpuIsa::neon && best != CpuIsa::neon;
  isa_in_use = is_foreign ? CpuIsa::baseline : std::min(isa, best);
}

void to_floats(const void* src, ElementType type, float* dst, int64_t size) {
  const auto* halves = static_cast<const uint16_t*>(src);
  if (type == ElementType::float16) {
    halves_to_floats(halves, dst, size);
  } else if (type == ElementType::bfloat16) {
    on_cpu_isa<convert<bfloat16_to_float, uint16_t, float>>(halves, dst, size);
  } else {
    std::memcpy(dst, src, size * sizeof(float));
  }
}

void from_floats(const float* src, void* dst, ElementType type, int64_t size) {
  auto* halves = static_cast<uint16_t*>(dst);
  if (type == ElementType::float16) {
    floats_to_halves(src, halves, size);
  } else if (type == ElementType::bfloat16) {
    on_cpu_isa<convert<float_to_bfloat16, float, uint16_t>>(src, halves, size);
  } else {
    std::memcpy(dst, src, size * sizeof(float));
  }
}

}  // namespace tern
