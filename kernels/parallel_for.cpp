#include "tern/kernels/parallel_for.h"

#include <atomic>
#include <exception>

#include <ATen/Parallel.h>
#include <c10/util/ParallelGuard.h>

// LibTorch uses the threads of GCC's OpenMP library. `#pragma omp` would add a
// second library, with its own threads, to a program compiled with Clang. This
// is the code that GCC generates for the pragma.
extern "C" {
void GOMP_parallel(
    void (*f)(void*),
    void* data,
    unsigned threads,
    unsigned flags);
int omp_get_num_threads();
int omp_get_thread_num();
void omp_set_num_threads(int threads);
}

namespace tern {
namespace {

void run_piece(
    c10::function_ref<void(int64_t, int64_t)> f,
    int thread,
    int64_t begin,
    int64_t end) {
  const at::internal::ThreadIdGuard numbered(thread);
  const c10::ParallelGuard parallel(true);
  f(begin, end);
}

struct Region {
  int64_t begin;
  int64_t end;
  int64_t grain;
  c10::function_ref<void(int64_t, int64_t)> f;
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr error = nullptr;

  void run_part() {
    const int64_t length = end - begin;
    const int64_t parts = std::min<int64_t>(
        omp_get_num_threads(),
        at::divup(length, std::max<int64_t>(grain, 1)));
    const int64_t part = at::divup(length, parts);
    const int thread = omp_get_thread_num();
    const int64_t first = begin + thread * part;
    if (first >= end) return;
    try {
      run_piece(f, thread, first, std::min(end, first + part));
    } catch (...) {
      if (!failed.test_and_set()) error = std::current_exception();
    }
  }
};

}  // namespace

void parallel_for(
    int64_t begin,
    int64_t end,
    int64_t grain,
    c10::function_ref<void(int64_t, int64_t)> f) {
  if (begin >= end) return;
  if (end - begin <= std::max<int64_t>(grain, 1) || at::in_parallel_region() ||
      at::get_num_threads() == 1) {
    run_piece(f, 0, begin, end);
    return;
  }
  Region region{begin, end, grain, f};
  const auto run_part = [](void* data) {
    static_cast<Region*>(data)->run_part();
  };
  // 0: as many threads as LibTorch has set.
  GOMP_parallel(run_part, &region, 0, 0);
  if (region.error) std::rethrow_exception(region.error);
}

void use_one_thread() {
  // LibTorch sets the number when a thread first uses it.
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(1);
}

}  // namespace tern
