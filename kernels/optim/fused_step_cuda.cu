#include <type_traits>

#include "tern/kernels/launch.cuh"
#include "tern/kernels/optim/dynamic_map.h"
#include "tern/kernels/optim/fused_step_math.h"

namespace tern {
namespace {

constexpr int kWidth = 4;
// `sums` has room for two sums per kStepBlock elements, so chunks fit.
static_assert(kChunk % kStepBlock == 0);

__device__ bool is_skipped(const GradStatePointers& state) {
  return state.found_inf && *state.found_inf != 0;
}

template <class Tensor>
constexpr int kStates = sizeof(Tensor::states) / sizeof(void*);

/// The part of a tensor that one block processes.
struct Chunk {
  int64_t begin, end;
  float grad_scale;
};

/// The moments of kPack elements.
template <class Tensor, int kPack>
struct Moments {
  static constexpr int kCount = kStates<Tensor>;
  Pack<float, kPack> values[kCount];

  __device__ __forceinline__ void load_floats(const Tensor& tensor, int64_t i) {
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
      const auto* state = static_cast<const float*>(tensor.states[s]);
      if (state) values[s] = load<kPack>(state + i);
    }
  }

  __device__ __forceinline__ void store_floats(const Tensor& tensor, int64_t i)
      const {
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
      auto* state = static_cast<float*>(tensor.states[s]);
      if (state) store<kPack>(state + i, values[s]);
    }
  }

  __device__ __forceinline__ void load_codes(const Tensor& tensor, int64_t i) {
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
      if (!tensor.states[s]) continue;
      const auto* block =
          map_block(static_cast<const uint8_t*>(tensor.states[s]), i);
      const float magnitude = *reinterpret_cast<const float*>(block);
      const auto codes = load<kPack>(block + sizeof(float) + i % kMapBlock);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        values[s].values[j] = decode_8bit(codes.values[j], s == 0) * magnitude;
      }
    }
  }

  /// \param largest  `largest[s]` is the magnitude of the block of element i.
  __device__ __forceinline__ void store_codes(
      const Tensor& tensor,
      int64_t i,
      const uint32_t (&largest)[kCount]) const {
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
      if (!tensor.states[s]) continue;
      auto* block = map_block(static_cast<uint8_t*>(tensor.states[s]), i);
      const float magnitude = magnitude_of(largest[s]);
      const float divisor = divisor_8bit(magnitude);
      Pack<uint8_t, kPack> codes;
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const float share = __fdiv_rn(values[s].values[j], divisor);
        codes.values[j] = static_cast<uint8_t>(encode_8bit(share, s == 0));
      }
      store<kPack>(block + sizeof(float) + i % kMapBlock, codes);
      if (i % kMapBlock == 0) *reinterpret_cast<float*>(block) = magnitude;
    }
  }
};

/// Converts `value` to the type of a weight. Rounds stochastically if the
/// weight is a bfloat16 parameter.
template <class Weight>
__device__ __forceinline__ Weight
rounded(const StepTensor& tensor, const Step& step, float value, int64_t i) {
  if constexpr (std::is_same_v<Weight, __nv_bfloat16>) {
    if (!tensor.param) {
      return __ushort_as_bfloat16(
          round_stochastically(value, tensor.rounding_key, step.count, i));
    }
  }
  return from_float<Weight>(value);
}

template <class Weight, int kPack>
__device__ __forceinline__ Pack<float, kPack> load_params(
    const StepTensor& tensor,
    int64_t i) {
  if (tensor.param) return load<kPack>(tensor.param + i);
  const auto weights =
      load<kPack>(static_cast<const Weight*>(tensor.weight) + i);
  Pack<float, kPack> params;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    params.values[j] = to_float(weights.values[j]);
  }
  return params;
}

/// Updates kPack elements starting at `i`: all loads, the arithmetic, and all
/// stores except the moments.
template <class Grad, class Weight, int kPack, class Tensor, class Step>
__device__ __forceinline__ void update_pack(
    const Tensor& tensor,
    const Step& step,
    float grad_scale,
    int64_t i,
    Moments<Tensor, kPack>& moments) {
  constexpr int kCount = kStates<Tensor>;
  const auto grad = load<kPack>(static_cast<const Grad*>(tensor.grad) + i);
  auto param = load_params<Weight, kPack>(tensor, i);
  const bool looks_ahead = tensor.slow_weight && step.looks_ahead;
  Pack<float, kPack> slow;
  if (looks_ahead) slow = load<kPack>(tensor.slow_weight + i);
  Pack<Weight, kPack> weight;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    float values[kCount];
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
      values[s] = moments.values[s].values[j];
    }
    // Dividing by 1 changes nothing; a true division, as the contract requires.
    const float unscaled = __fdiv_rn(to_float(grad.values[j]), grad_scale);
    update(step, unscaled, param.values[j], values);
#pragma unroll
    for (int s = 0; s < kCount; ++s) {
      moments.values[s].values[j] = values[s];
    }
    if (looks_ahead) look_ahead(step, param.values[j], slow.values[j]);
    weight.values[j] = rounded<Weight>(tensor, step, param.values[j], i + j);
  }
  if (tensor.param) store<kPack>(tensor.param + i, param);
  if (looks_ahead) store<kPack>(tensor.slow_weight + i, slow);
  if (tensor.weight) {
    store<kPack>(static_cast<Weight*>(tensor.weight) + i, weight);
  }
}

template <class Grad, class Weight, int kPack, class Tensor, class Step>
__device__ __forceinline__ void update_floats(
    const Tensor& tensor,
    const Step& step,
    float grad_scale,
    int64_t i) {
  Moments<Tensor, kPack> moments;
  moments.load_floats(tensor, i);
  update_pack<Grad, Weight>(tensor, step, grad_scale, i, moments);
  moments.store_floats(tensor, i);
}

/// Updates a chunk with 8-bit moments. A block of the map is known only once
/// all its elements are, so the threads run in step.
template <class Grad, class Weight, int kPack, class Tensor, class Step>
__device__ void
update_codes(const Tensor& tensor, const Step& step, const Chunk& chunk) {
  constexpr int kCount = kStates<Tensor>;
  constexpr int kRound = kThreads * kPack;
  __shared__ uint32_t largest[kRound / kMapBlock][kCount];
  const int own = threadIdx.x * kPack / static_cast<int>(kMapBlock);
  for (int64_t begin = chunk.begin; begin < chunk.end; begin += kRound) {
    const int64_t i = begin + threadIdx.x * kPack;
    const bool is_inside = i < chunk.end;
    if (i % kMapBlock == 0) {
      for (int s = 0; s < kCount; ++s) largest[own][s] = 0;
    }
    __syncthreads();
    Moments<Tensor, kPack> moments;
    if (is_inside) {
      moments.load_codes(tensor, i);
      update_pack<Grad, Weight>(tensor, step, chunk.grad_scale, i, moments);
#pragma unroll
      for (int s = 0; s < kCount; ++s) {
        if (!tensor.states[s]) continue;
        uint32_t bits = 0;
#pragma unroll
        for (int j = 0; j < kPack; ++j) {
          const uint32_t one = magnitude_bits(moments.values[s].values[j]);
          bits = one > bits ? one : bits;
        }
        atomicMax(&largest[own][s], bits);
      }
    }
    __syncthreads();
    if (is_inside) moments.store_codes(tensor, i, largest[own]);
    __syncthreads();
  }
}

template <class Tensor>
__device__ bool is_vectorizable(const Tensor& tensor) {
  // Chunks begin at multiples of kWidth, so only the base addresses matter.
  bool aligned =
      is_aligned(tensor.param, sizeof(float), kWidth) &&
      is_aligned(tensor.grad, size_in_bytes(tensor.grad_type), kWidth) &&
      is_aligned(tensor.weight, size_in_bytes(tensor.weight_type), kWidth) &&
      is_aligned(tensor.slow_weight, sizeof(float), kWidth);
  if (tensor.has_8bit_moments) return aligned && tensor.size % kWidth == 0;
  for (int s = 0; s < kStates<Tensor>; ++s) {
    aligned = aligned && is_aligned(tensor.states[s], sizeof(float), kWidth);
  }
  return aligned;
}

template <class Grad, class Weight, class Tensor, class Step>
__device__ void
update_chunk(const Tensor& tensor, const Step& step, const Chunk& chunk) {
  const bool is_wide = is_vectorizable(tensor);
  if (tensor.has_8bit_moments) {
    return is_wide ? update_codes<Grad, Weight, kWidth>(tensor, step, chunk)
                   : update_codes<Grad, Weight, 1>(tensor, step, chunk);
  }
  int64_t scalar_begin = chunk.begin;
  if (is_wide) {
    scalar_begin = chunk.end - chunk.end % kWidth;
    for (int64_t i = chunk.begin + int64_t{kWidth} * threadIdx.x;
         i < scalar_begin;
         i += int64_t{kWidth} * kThreads) {
      update_floats<Grad, Weight, kWidth>(tensor, step, chunk.grad_scale, i);
    }
  }
  for (int64_t i = scalar_begin + threadIdx.x; i < chunk.end; i += kThreads) {
    update_floats<Grad, Weight, 1>(tensor, step, chunk.grad_scale, i);
  }
}

/// Missing weights are handled as floats that are not stored.
template <class Grad, class Tensor, class Step>
__device__ void
dispatch_weight(const Tensor& tensor, const Step& step, const Chunk& chunk) {
  if (!tensor.weight) {
    update_chunk<Grad, float>(tensor, step, chunk);
  } else if (tensor.weight_type == ElementType::float16) {
    update_chunk<Grad, __half>(tensor, step, chunk);
  } else {
    update_chunk<Grad, __nv_bfloat16>(tensor, step, chunk);
  }
}

/// Adds in a fixed order. All threads of a block must call it.
__device__ double sum_of_threads(double value) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = sums[0];
  __syncthreads();
  return sum;
}

__device__ float grad_at(const StepTensor& tensor, int64_t i) {
  switch (tensor.grad_type) {
    case ElementType::float16:
      return to_float(static_cast<const __half*>(tensor.grad)[i]);
    case ElementType::bfloat16:
      return to_float(static_cast<const __nv_bfloat16*>(tensor.grad)[i]);
    default:
      return static_cast<const float*>(tensor.grad)[i];
  }
}

/// Computes the sums of one chunk, for the trust ratio of its tensor.
template <class Table, class Args>
__global__ void __launch_bounds__(kThreads) measure_kernel(
    const __grid_constant__ Table table,
    const Args args,
    const Args* __restrict__ args_on_device,
    const GradStatePointers state) {
  using Tensor = typename Table::Record;
  if (is_skipped(state)) return;
  const int index = table.find(blockIdx.x);
  const Tensor& tensor = table.records[index];
  __shared__ decltype(make_step(args, 0.0f)) step;
  if (threadIdx.x == 0) {
    step = make_step(args_now(args, args_on_device), *tensor.step);
  }
  __syncthreads();
  const float grad_scale = state.grad_scale ? *state.grad_scale : 1.0f;
  const int64_t chunk = blockIdx.x - table.first_block[index];
  const int64_t end = min((chunk + 1) * kChunk, tensor.size);
  double param_sum = 0, change_sum = 0;
  for (int64_t i = chunk * kChunk + threadIdx.x; i < end; i += kThreads) {
    Moments<Tensor, 1> moments;
    if (tensor.has_8bit_moments) {
      moments.load_codes(tensor, i);
    } else {
      moments.load_floats(tensor, i);
    }
    float values[kStates<Tensor>];
#pragma unroll
    for (int s = 0; s < kStates<Tensor>; ++s) {
      values[s] = moments.values[s].values[0];
    }
    const float unscaled = __fdiv_rn(grad_at(tensor, i), grad_scale);
    const float param = load_params<__nv_bfloat16, 1>(tensor, i).values[0];
    const Measured now = measure(step, unscaled, param, values);
    param_sum += static_cast<double>(now.param) * now.param;
    change_sum += static_cast<double>(now.change) * now.change;
  }
  param_sum = sum_of_threads(param_sum);
  change_sum = sum_of_threads(change_sum);
  if (threadIdx.x != 0) return;
  tensor.sums[2 * chunk] = param_sum;
  tensor.sums[2 * chunk + 1] = change_sum;
}

/// Returns the first or the second sum over all chunks.
__device__ double sum_of_chunks(const StepTensor& tensor, int which) {
  const int64_t chunks = (tensor.size + kChunk - 1) / kChunk;
  double sum = 0;
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) {
    sum += tensor.sums[2 * i + which];
  }
  return sum_of_threads(sum);
}

template <class Table, class Args>
__global__ void __launch_bounds__(kThreads, 2) step_kernel(
    const __grid_constant__ Table table,
    const Args args,
    const Args* __restrict__ args_on_device,
    const GradStatePointers state) {
  if (is_skipped(state)) return;
  const int index = table.find(blockIdx.x);
  const auto& tensor = table.records[index];
  // Two powers in double: computed once per block, not per thread.
  __shared__ decltype(make_step(args, 0.0f)) step;
  if (threadIdx.x == 0) {
    step = make_step(args_now(args, args_on_device), *tensor.step);
  }
  __syncthreads();
  if (has_trust_ratio(args)) {
    const double param_sum = sum_of_chunks(tensor, 0);
    const double change_sum = sum_of_chunks(tensor, 1);
    if (threadIdx.x == 0) {
      trust(step, args_now(args, args_on_device), param_sum, change_sum);
    }
    __syncthreads();
  }
  Chunk chunk;
  chunk.begin = (blockIdx.x - table.first_block[index]) * kChunk;
  chunk.end = min(chunk.begin + kChunk, tensor.size);
  chunk.grad_scale = state.grad_scale ? *state.grad_scale : 1.0f;
  switch (tensor.grad_type) {
    case ElementType::float16:
      dispatch_weight<__half>(tensor, step, chunk);
      break;
    case ElementType::bfloat16:
      dispatch_weight<__nv_bfloat16>(tensor, step, chunk);
      break;
    default:
      dispatch_weight<float>(tensor, step, chunk);
      break;
  }
}

/// The step counts of several parameters.
template <int kCapacity>
struct StepCounts {
  int32_t count;
  float* steps[kCapacity];
};

constexpr int kMostStepCounts =
    (kTableBytes - sizeof(int64_t)) / sizeof(float*);

/// Runs after the update on the same stream, because every block of a tensor
/// reads its count.
template <int kCapacity>
__global__ void advance_kernel(
    const __grid_constant__ StepCounts<kCapacity> counts,
    const GradStatePointers state) {
  if (is_skipped(state)) return;
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < counts.count) *counts.steps[i] += 1;
}

template <int kCapacity, class Tensor>
cudaError_t advance(
    const Tensor* tensors,
    int64_t count,
    const GradStatePointers& state,
    cudaStream_t stream) {
  StepCounts<kCapacity> counts;
  static_assert(sizeof(counts) <= kTableBytes);
  cudaError_t status = cudaSuccess;
  for (int64_t first = 0; first < count && status == cudaSuccess;
       first += kCapacity) {
    const int64_t here = count - first < kCapacity ? count - first : kCapacity;
    counts.count = static_cast<int32_t>(here);
    for (int64_t i = 0; i < here; ++i) {
      counts.steps[i] = tensors[first + i].step;
    }
    const int64_t blocks = (here + kThreads - 1) / kThreads;
    status = launch(advance_kernel<kCapacity>, blocks, stream, counts, state);
  }
  return status;
}

}  // namespace

template <class Tensor, class Args>
int fused_step_cuda(
    const Tensor* tensors,
    int64_t count,
    const Args& args,
    const Args* args_on_device,
    const GradStatePointers& state,
    CUstream_st* stream) {
  const auto start = [&](const auto& table, int32_t blocks) {
    using Table = std::decay_t<decltype(table)>;
    const auto start_kernel = [&](auto* kernel) {
      return launch(kernel, blocks, stream, table, args, args_on_device, state);
    };
    if (has_trust_ratio(args)) {
      const cudaError_t measured = start_kernel(measure_kernel<Table, Args>);
      if (measured != cudaSuccess) return measured;
    }
    return start_kernel(step_kernel<Table, Args>);
  };
  const cudaError_t status = for_each_table(tensors, count, start);
  if (status != cudaSuccess) return status;
  return with_capacity<kMostStepCounts>(count, [&](auto capacity) {
    return advance<capacity()>(tensors, count, state, stream);
  });
}

template int fused_step_cuda(
    const SgdTensor*,
    int64_t,
    const FusedSgdArgs&,
    const FusedSgdArgs*,
    const GradStatePointers&,
    CUstream_st*);
template int fused_step_cuda(
    const AdamTensor*,
    int64_t,
    const FusedAdamArgs&,
    const FusedAdamArgs*,
    const GradStatePointers&,
    CUstream_st*);

}  // namespace tern
