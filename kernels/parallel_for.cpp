#include "tern/kernels/parallel_for.h"

#include <ATen/Parallel.h>

#ifndef _OPENMP
#error "at::parallel_for has one thread without -fopenmp"
#endif

namespace tern {

void parallel_for(
    int64_t begin,
    int64_t end,
    int64_t grain,
    c10::function_ref<void(int64_t, int64_t)> f) {
  at::parallel_for(begin, end, grain, f);
}

}  // namespace tern
