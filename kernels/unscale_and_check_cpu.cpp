#include <atomic>
#include <vector>

#include "tern/kernels/parallel_elements.h"
#include "tern/kernels/unscale_and_check_launch.h"
#include "tern/kernels/unscale_and_check_loops.h"

namespace tern {

void unscale_and_check_cpu(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf) {
  const UnscaleLoops& loops = TERN_SELECT_LOOPS(unscale_loops);
  const bool only_check = !inv_scale || *inv_scale == 1;
  std::vector<int64_t> sizes(count);
  for (int64_t i = 0; i < count; ++i) {
    sizes[i] = grads[i].size;
  }
  std::atomic<bool> found{false};
  parallel_elements(sizes, [&](size_t i, int64_t begin, int64_t end) {
    const ElementType type = grads[i].type;
    char* data =
        static_cast<char*>(grads[i].data) + begin * size_in_bytes(type);
    const bool here =
        only_check
            ? loops.has_non_finite(data, type, end - begin)
            : loops.unscale_and_check(data, type, end - begin, *inv_scale);
    if (here) {
      found.store(true, std::memory_order_relaxed);
    }
  });
  if (found) {
    *found_inf = 1;
  }
}

}  // namespace tern
