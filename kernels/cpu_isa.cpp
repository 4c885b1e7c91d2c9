#include "tern/kernels/cpu_isa.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

namespace tern {
namespace {

CpuIsa initial_cpu_isa() {
  const CpuIsa best = best_cpu_isa();
  const char* wish = std::getenv("TERN_CPU_ISA");
  if (!wish) {
    return best;
  }
  if (wish == std::string_view("baseline")) {
    return CpuIsa::baseline;
  }
  return wish == std::string_view("avx2") ? std::min(best, CpuIsa::avx2) : best;
}

std::atomic<CpuIsa>& isa_in_use() {
  static std::atomic<CpuIsa> isa{initial_cpu_isa()};
  return isa;
}

}  // namespace

CpuIsa best_cpu_isa() {
#ifdef TERN_X86_LOOPS
  __builtin_cpu_init();
  // The same lists as the compiler flags in kernels/CMakeLists.txt; every
  // processor with AVX2 has F16C, and every one with AVX-512 BW has F and VL.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return CpuIsa::avx512;
  }
  if (__builtin_cpu_supports("avx2")) {
    return CpuIsa::avx2;
  }
#endif
  return CpuIsa::baseline;
}

CpuIsa cpu_isa() {
  return isa_in_use().load(std::memory_order_relaxed);
}

void set_cpu_isa(CpuIsa isa) {
  isa_in_use() = std::min(isa, best_cpu_isa());
}

}  // namespace tern
