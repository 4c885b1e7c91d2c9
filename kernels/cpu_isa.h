#pragma once

#include <cstdint>

#include "tern/kernels/kernel_args.h"

namespace tern {

/// Instruction sets of the inner loops. The binary contains the loops for every
/// instruction set of its architecture, so it runs on every x86-64 processor
/// and is fast on new ones. Every aarch64 processor has NEON; there, the
/// baseline lacks only the hand-written loops, which compilers do not
/// vectorize.
enum class CpuIsa { baseline, neon, avx2, avx512 };

/// Returns the widest instruction set of this processor.
CpuIsa best_cpu_isa();

/// Returns the instruction set in use: the best one, unless
/// TERN_CPU_ISA=baseline|avx2|avx512 in the environment or `set_cpu_isa` limits
/// it. All give bit-identical results, except for convolutions: some use Tern's
/// code only on certain instruction sets, others use FMA (fma_loop.h).
CpuIsa cpu_isa();

/// True if this processor multiplies bfloat16 in hardware (AVX512-BF16, AMX),
/// so that 16 bits are faster than fp32. On architectures other than x86-64
/// this is unknown and returns true.
bool multiplies_bfloat16();

/// Sets the instruction set, for tests and benchmarks. If the processor lacks
/// it, selects the best one that it supports; NEON on a different architecture
/// selects the baseline.
void set_cpu_isa(CpuIsa isa);

/// Marks an inner loop and the functions that it calls: they are inlined into
/// `on_cpu_isa<loop>` and compiled for its instruction set.
#define TERN_CPU_LOOP static inline __attribute__((always_inline))

// These targets exclude FMA, which rounds once where the baseline rounds twice.
// Every processor with AVX2 has F16C, and every one with AVX-512 BW has F and
// VL.
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
/// the instruction set in use. A call costs a few nanoseconds, so pass a block
/// of elements.
template <auto kLoop>
constexpr auto on_cpu_isa = &CpuLoop<kLoop>::run;

/// Converts `size` elements of float32, float16 or bfloat16.
void to_floats(const void* src, ElementType type, float* dst, int64_t size);
/// The reverse, rounded to nearest, ties to even; a NaN stays NaN.
void from_floats(const float* src, void* dst, ElementType type, int64_t size);

}  // namespace tern
