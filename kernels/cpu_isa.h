#pragma once

namespace tern {

/// What the inner loops were compiled for. The binary holds all of them, so
/// it runs on every x86-64 and is fast on a new one.
enum class CpuIsa { baseline, avx2, avx512 };

/// The widest that this processor and this build have.
CpuIsa best_cpu_isa();

/// The one in use: the best, unless TERN_CPU_ISA=baseline|avx2|avx512 in the
/// environment or `set_cpu_isa` ask for less. All give the same bits.
CpuIsa cpu_isa();

/// For tests and benchmarks. Asking for more than the processor has gives the
/// best that it has.
void set_cpu_isa(CpuIsa isa);

}  // namespace tern

// A `<name>_loops.cpp` is compiled once an instruction set, into the namespace
// of that name, and defines there one table of functions `<name>_loops`.
#ifdef TERN_X86_LOOPS
#define TERN_DECLARE_LOOPS(Type, name) \
  namespace baseline {                 \
  extern const Type name;              \
  }                                    \
  namespace avx2 {                     \
  extern const Type name;              \
  }                                    \
  namespace avx512 {                   \
  extern const Type name;              \
  }
#define TERN_SELECT_LOOPS(name)                               \
  (::tern::cpu_isa() == ::tern::CpuIsa::avx512 ? avx512::name \
   : ::tern::cpu_isa() == ::tern::CpuIsa::avx2 ? avx2::name   \
                                               : baseline::name)
#else
#define TERN_DECLARE_LOOPS(Type, name) \
  namespace baseline {                 \
  extern const Type name;              \
  }
#define TERN_SELECT_LOOPS(name) (baseline::name)
#endif
