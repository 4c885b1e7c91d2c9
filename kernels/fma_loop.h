#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/float_lanes.h"

// Inner loops of convolutions, which use fused multiply-add (FMA). They are
// twice as fast as without it, and unlike the results of the other loops of
// this folder, theirs depend in the last bits on the instruction set. Their
// sources are compiled with -ffp-contract=fast.
namespace tern {

/// True if the instruction set in use has FMA.
inline bool has_fma() {
#ifdef __x86_64__
  const CpuIsa isa = cpu_isa();
  return isa == CpuIsa::avx512 ||
         (isa == CpuIsa::avx2 && __builtin_cpu_supports("fma"));
#else
  return false;
#endif
}

template <auto kLoop>
struct FmaLoop;

template <class Result, class... Args, Result (*kLoop)(Args...)>
struct FmaLoop<kLoop> {
  static Result run(Args... args) {
#ifdef __x86_64__
    if (cpu_isa() == CpuIsa::avx512) return avx512(args...);
    if (has_fma()) return avx2(args...);
#endif
    return kLoop(args...);
  }

#ifdef __x86_64__
  __attribute__((target("avx2,fma,f16c"))) static Result avx2(Args... args) {
    return kLoop(args...);
  }
  TERN_AVX512 static Result avx512(Args... args) { return kLoop(args...); }
#endif
};

/// Like `on_cpu_isa`, with FMA where `has_fma()`.
template <auto kLoop>
constexpr auto on_fma_isa = &FmaLoop<kLoop>::run;

}  // namespace tern
