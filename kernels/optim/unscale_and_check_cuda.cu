#include "tern/kernels/launch.cuh"

namespace tern {
namespace {

/// Computes in float, but in double for double.
__device__ double to_math(double value) {
  return value;
}
template <class T>
__device__ float to_math(T value) {
  return to_float(value);
}

template <class T, class Math>
__device__ T from_math(Math value) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return value;
  } else {
    return from_float<T>(value);
  }
}

/// Loads one pack of `T`, checks it, and stores it if there is a factor.
template <class T, int kWidth>
__device__ __forceinline__ bool visit(T* at, bool is_written, float factor) {
  auto pack = load<kWidth>(at);
  bool found = false;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    const auto value = to_math(pack.values[j]);
    found |= !isfinite(value);
    pack.values[j] = from_math<T>(value * factor);
  }
  if (is_written) store<kWidth>(at, pack);
  return found;
}

template <class T>
__device__ bool visit_chunk(
    void* data,
    int64_t begin,
    int64_t end,
    bool is_written,
    float factor) {
  constexpr int kWidth = 16 / sizeof(T);
  T* elements = static_cast<T*>(data);
  bool found = false;
  int64_t scalar_begin = begin;
  if (is_aligned(data, sizeof(T), kWidth)) {
    scalar_begin = end - end % kWidth;
    for (int64_t i = begin + int64_t{kWidth} * threadIdx.x; i < scalar_begin;
         i += int64_t{kWidth} * kThreads) {
      found |= visit<T, kWidth>(elements + i, is_written, factor);
    }
  }
  for (int64_t i = scalar_begin + threadIdx.x; i < end; i += kThreads) {
    found |= visit<T, 1>(elements + i, is_written, factor);
  }
  return found;
}

template <class Table>
__global__ void __launch_bounds__(kThreads) unscale_and_check_kernel(
    const __grid_constant__ Table table,
    const float* inv_scale,
    float* found_inf) {
  const int index = table.find(blockIdx.x);
  const GradTensor& grad = table.records[index];
  const int64_t begin = (blockIdx.x - table.first_block[index]) * kChunk;
  const int64_t end = min(begin + kChunk, grad.size);
  const float factor = inv_scale ? *inv_scale : 1.0f;
  const bool is_written = factor != 1;
  bool found = false;
  switch (grad.type) {
    case ElementType::float32:
      found = visit_chunk<float>(grad.data, begin, end, is_written, factor);
      break;
    case ElementType::float64:
      found = visit_chunk<double>(grad.data, begin, end, is_written, factor);
      break;
    case ElementType::float16:
      found = visit_chunk<__half>(grad.data, begin, end, is_written, factor);
      break;
    case ElementType::bfloat16:
      found =
          visit_chunk<__nv_bfloat16>(grad.data, begin, end, is_written, factor);
      break;
  }
  if (found) {
    *found_inf = 1;  // every writer stores the same value
  }
}

}  // namespace

int unscale_and_check_cuda(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf,
    CUstream_st* stream) {
  return for_each_table(grads, count, [&](const auto& table, int32_t blocks) {
    return launch(
        unscale_and_check_kernel<std::decay_t<decltype(table)>>,
        blocks,
        stream,
        table,
        inv_scale,
        found_inf);
  });
}

}  // namespace tern
