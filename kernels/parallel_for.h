#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <c10/util/FunctionRef.h>

namespace tern {

/// Calls `f(begin, end)` on pieces of [begin, end), each at least `grain` long,
/// on LibTorch's threads; the same as at::parallel_for.
///
/// LibTorch's version is a template that silently uses one thread in a file
/// that is compiled without GCC's OpenMP.
void parallel_for(
    int64_t begin,
    int64_t end,
    int64_t grain,
    c10::function_ref<void(int64_t, int64_t)> f);

/// Makes tensor operations of the calling thread single-threaded.
void use_one_thread();

/// Grain size of LibTorch's elementwise loops.
constexpr int64_t kElementGrain = 32768;

/// Runs `f(index, begin, end)` on pieces that together cover [0, sizes[index])
/// of every tensor, in one parallel region for the whole list, so that many
/// small tensors cost no more than one large one.
///
/// Pieces begin at multiples of `alignment` elements. With 64, threads share no
/// cache line and vector loads stay aligned.
template <class F>
void parallel_elements(
    const std::vector<int64_t>& sizes,
    const F& f,
    int64_t alignment = 64) {
  std::vector<int64_t> starts(sizes.size() + 1, 0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    starts[i + 1] = starts[i] + sizes[i];
  }
  parallel_for(
      0,
      starts.back(),
      kElementGrain,
      [&](int64_t range_begin, int64_t range_end) {
        // Both ends of a range are rounded the same way, so neighbors meet.
        const auto position_in = [&](size_t i, int64_t at) {
          const int64_t offset = at - starts[i];
          return offset >= sizes[i]
                     ? sizes[i]
                     : std::max<int64_t>(offset, 0) / alignment * alignment;
        };
        size_t i = std::upper_bound(starts.begin(), starts.end(), range_begin) -
                   starts.begin() - 1;
        for (; i < sizes.size() && starts[i] < range_end; ++i) {
          const int64_t begin = position_in(i, range_begin);
          const int64_t end = position_in(i, range_end);
          if (begin < end) f(i, begin, end);
        }
      });
}

}  // namespace tern
