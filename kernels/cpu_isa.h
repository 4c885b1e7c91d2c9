#pragma once

#include <cstdint>

#include "tern/kernels/kernel_args.h"

namespace tern {

/// Instruction sets of the inner loops. The binary holds all of its
/// architecture's, so it runs on every x86-64 and is fast on a new one. Every
/// aarch64 has NEON: there the baseline is without what no compiler finds.
enum class CpuIsa { baseline, neon, avx2, avx512 };

/// The widest that this processor has.
CpuIsa best_cpu_isa();

/// The one in use: the best, unless TERN_CPU_ISA=baseline|avx2|avx512 in the
/// environment or `set_cpu_isa` ask for less. All give the same bits, but for
/// convolutions, of which some are Tern's with certain instructions alone.
CpuIsa cpu_isa();

/// Whether this processor multiplies bfloat16 itself (AVX512-BF16, AMX), so that
/// 16 bits are faster than fp32; on others than x86-64 it is not known, and true.
bool multiplies_bfloat16();

/// For tests and benchmarks. Asking for more than the processor has gives the
/// best that it has; NEON, where it is another architecture, the baseline.
void set_cpu_isa(CpuIsa isa);

/// Marks an inner loop and the functions that it calls: they become part of
/// `on_cpu_isa<loop>` and are compiled as it is.
#define TERN_CPU_LOOP static inline __attribute__((always_inline))

// No FMA, which rounds once where the baseline rounds twice. Every processor
// with AVX2 has F16C, and every one with AVX-512 BW has F and VL.
#define TERN_AVX2 __attribute__((target("avx2,f16c")))
#ifdef __clang__
#define TERN_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#else
#define TERN_AVX512                                     \
  __attribute__((                                       \
      target("avx512f,avx512bw,avx512dq,avx512vl,f16c," \
             "prefer-vector-width=512")))
#endif

template <auto kLoop>
struct CpuLoop;

template <class Result, class... Args, Result (*kLoop)(Args...)>
struct CpuLoop<kLoop> {
  static Result run(Args... args) {
#ifdef __x86_64__
    const CpuIsa isa = cpu_isa();
    if (isa == CpuIsa::avx512) return avx512(args...);
    if (isa == CpuIsa::avx2) return avx2(args...);
#endif
    return kLoop(args...);
  }

#ifdef __x86_64__
  TERN_AVX2 static Result avx2(Args... args) { return kLoop(args...); }
  TERN_AVX512 static Result avx512(Args... args) { return kLoop(args...); }
#endif
};

/// `on_cpu_isa<loop>(arguments...)` runs `loop`, a TERN_CPU_LOOP, compiled for
/// the instruction set in use. It costs some nanoseconds: give it a block of
/// elements.
template <auto kLoop>
constexpr auto on_cpu_isa = &CpuLoop<kLoop>::run;

/// Converts `size` elements of float32, float16 or bfloat16.
void to_floats(const void* src, ElementType type, float* dst, int64_t size);
/// The other way, rounded to nearest, ties to even; a NaN stays one.
void from_floats(const float* src, void* dst, ElementType type, int64_t size);

}  // namespace tern
