#pragma once

#include <cstdint>

#include <c10/util/FunctionRef.h>

namespace tern {

/// at::parallel_for: `f(begin, end)` on pieces of [begin, end), each at least
/// `grain` long, by LibTorch's threads.
///
/// LibTorch's is a template, and in a file that is compiled without GCC's
/// OpenMP it runs everything on one thread without a word.
void parallel_for(
    int64_t begin,
    int64_t end,
    int64_t grain,
    c10::function_ref<void(int64_t, int64_t)> f);

/// From now on the tensor operations of this thread start no others: it is one
/// of many.
void use_one_thread();

/// The grain of LibTorch's own loops over elements.
constexpr int64_t kElementGrain = 32768;

}  // namespace tern
