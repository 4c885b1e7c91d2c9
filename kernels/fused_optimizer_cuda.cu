#include "tern/kernels/fused_optimizer_math.h"
#include "tern/kernels/launch.cuh"

namespace tern {
namespace {

constexpr int kWidth = 4;

__device__ bool is_skipped(const GradStatePointers& state) {
  return state.found_inf && *state.found_inf != 0;
}

/// What the kernels need of either optimizer: the scalars of a step, where its
/// moments lie, and the update of one element.
struct Sgd {
  using Tensor = SgdTensor;
  using Args = FusedSgdArgs;
  using Step = SgdStep;
  static constexpr int kStates = 1;

  static __device__ Step make_step(const Args& args, float steps_done) {
    return sgd_step(args, steps_done);
  }
  static __device__ float* state(const Tensor& tensor, int) {
    return tensor.momentum_buffer;
  }
  static __device__ void
  update(const Step& step, float grad, float& param, float (&states)[kStates]) {
    sgd_update(step, grad, param, &states[0]);
  }
};

struct Adam {
  using Tensor = AdamTensor;
  using Args = FusedAdamArgs;
  using Step = AdamStep;
  static constexpr int kStates = 3;

  static __device__ Step make_step(const Args& args, float steps_done) {
    return adam_step(args, steps_done);
  }
  static __device__ float* state(const Tensor& tensor, int which) {
    return which == 0   ? tensor.exp_avg
           : which == 1 ? tensor.exp_avg_sq
                        : tensor.max_exp_avg_sq;
  }
  static __device__ void
  update(const Step& step, float grad, float& param, float (&states)[kStates]) {
    adam_update(step, grad, param, states[0], states[1], &states[2]);
  }
};

/// One block's part of one tensor.
struct Chunk {
  int64_t begin, end;
  float grad_scale;
};

/// kWidth elements from `i` on: all reads, the arithmetic, all writes.
template <class Optimizer, class Grad, class Weight, int kPack>
__device__ __forceinline__ void update_pack(
    const typename Optimizer::Tensor& tensor,
    const typename Optimizer::Step& step,
    float grad_scale,
    int64_t i) {
  constexpr int kStates = Optimizer::kStates;
  const auto grad = load<kPack>(static_cast<const Grad*>(tensor.grad) + i);
  auto param = load<kPack>(tensor.param + i);
  Pack<float, kPack> states[kStates];
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    if (float* state = Optimizer::state(tensor, s)) {
      states[s] = load<kPack>(state + i);
    }
  }
  Pack<Weight, kPack> weight;
#pragma unroll
  for (int j = 0; j < kPack; ++j) {
    float values[kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      values[s] = states[s].values[j];
    }
    // Dividing by 1 changes nothing; true division, as the contract says.
    const float unscaled = __fdiv_rn(to_float(grad.values[j]), grad_scale);
    Optimizer::update(step, unscaled, param.values[j], values);
#pragma unroll
    for (int s = 0; s < kStates; ++s) {
      states[s].values[j] = values[s];
    }
    weight.values[j] = from_float<Weight>(param.values[j]);
  }
  store<kPack>(tensor.param + i, param);
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    if (float* state = Optimizer::state(tensor, s)) {
      store<kPack>(state + i, states[s]);
    }
  }
  if (tensor.weight) {
    store<kPack>(static_cast<Weight*>(tensor.weight) + i, weight);
  }
}

template <class Optimizer>
__device__ bool is_vectorizable(const typename Optimizer::Tensor& tensor) {
  // Chunks begin at multiples of kWidth, so the bases decide.
  bool aligned =
      is_aligned(tensor.param, sizeof(float), kWidth) &&
      is_aligned(tensor.grad, size_in_bytes(tensor.grad_type), kWidth) &&
      is_aligned(tensor.weight, size_in_bytes(tensor.weight_type), kWidth);
  for (int s = 0; s < Optimizer::kStates; ++s) {
    aligned = aligned &&
              is_aligned(Optimizer::state(tensor, s), sizeof(float), kWidth);
  }
  return aligned;
}

template <class Optimizer, class Grad, class Weight>
__device__ void update_chunk(
    const typename Optimizer::Tensor& tensor,
    const typename Optimizer::Step& step,
    const Chunk& chunk) {
  int64_t scalar_begin = chunk.begin;
  if (is_vectorizable<Optimizer>(tensor)) {
    scalar_begin = chunk.end - chunk.end % kWidth;
    for (int64_t i = chunk.begin + int64_t{kWidth} * threadIdx.x;
         i < scalar_begin;
         i += int64_t{kWidth} * kThreads) {
      update_pack<Optimizer, Grad, Weight, kWidth>(
          tensor,
          step,
          chunk.grad_scale,
          i);
    }
  }
  for (int64_t i = scalar_begin + threadIdx.x; i < chunk.end; i += kThreads) {
    update_pack<Optimizer, Grad, Weight, 1>(tensor, step, chunk.grad_scale, i);
  }
}

/// Absent weights travel as floats that are not stored.
template <class Optimizer, class Grad>
__device__ void dispatch_weight(
    const typename Optimizer::Tensor& tensor,
    const typename Optimizer::Step& step,
    const Chunk& chunk) {
  if (!tensor.weight) {
    update_chunk<Optimizer, Grad, float>(tensor, step, chunk);
  } else if (tensor.weight_type == ElementType::float16) {
    update_chunk<Optimizer, Grad, __half>(tensor, step, chunk);
  } else {
    update_chunk<Optimizer, Grad, __nv_bfloat16>(tensor, step, chunk);
  }
}

template <class Optimizer>
__global__ void __launch_bounds__(kThreads) step_kernel(
    const __grid_constant__ TensorTable<typename Optimizer::Tensor> table,
    const typename Optimizer::Args args,
    const typename Optimizer::Args* __restrict__ args_on_device,
    const GradStatePointers state) {
  if (is_skipped(state)) {
    return;
  }
  const int index = table.find(blockIdx.x);
  const auto& tensor = table.records[index];
  // Two powers in double: once a block, not once a thread.
  __shared__ typename Optimizer::Step step;
  if (threadIdx.x == 0) {
    step = Optimizer::make_step(args_now(args, args_on_device), *tensor.step);
  }
  __syncthreads();
  Chunk chunk;
  chunk.begin = (blockIdx.x - table.first_block[index]) * kChunk;
  chunk.end = min(chunk.begin + kChunk, tensor.size);
  chunk.grad_scale = state.grad_scale ? *state.grad_scale : 1.0f;
  switch (tensor.grad_type) {
    case ElementType::float16:
      dispatch_weight<Optimizer, __half>(tensor, step, chunk);
      break;
    case ElementType::bfloat16:
      dispatch_weight<Optimizer, __nv_bfloat16>(tensor, step, chunk);
      break;
    default:
      dispatch_weight<Optimizer, float>(tensor, step, chunk);
      break;
  }
}

/// The step counts, one "tensor" of one element each.
struct StepCount {
  float* step;
  int64_t size;
};

/// Runs behind the update on the same stream, because every block of a tensor
/// reads its count. Here a thread takes a record, not a block.
__global__ void advance_kernel(
    const __grid_constant__ TensorTable<StepCount> table,
    const GradStatePointers state) {
  if (is_skipped(state)) {
    return;
  }
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < table.count) {
    *table.records[i].step += 1;
  }
}

template <class Optimizer>
int step_all(
    const typename Optimizer::Tensor* tensors,
    int64_t count,
    const typename Optimizer::Args& args,
    const typename Optimizer::Args* args_on_device,
    const GradStatePointers& state,
    cudaStream_t stream) {
  cudaError_t status =
      for_each_table(tensors, count, [&](const auto& table, int32_t blocks) {
        return launch(
            step_kernel<Optimizer>,
            blocks,
            stream,
            table,
            args,
            args_on_device,
            state);
      });
  if (status != cudaSuccess) {
    return status;
  }
  constexpr int64_t kCapacity = TensorTable<StepCount>::kCapacity;
  TensorTable<StepCount> table;
  for (int64_t first = 0; first < count && status == cudaSuccess;
       first += kCapacity) {
    const int64_t here = count - first < kCapacity ? count - first : kCapacity;
    table.count = static_cast<int32_t>(here);
    for (int64_t i = 0; i < here; ++i) {
      table.records[i] = {tensors[first + i].step, 1};
    }
    const int64_t blocks = (here + kThreads - 1) / kThreads;
    status = launch(advance_kernel, blocks, stream, table, state);
  }
  return status;
}

}  // namespace

int fused_sgd_cuda(
    const SgdTensor* tensors,
    int64_t count,
    const FusedSgdArgs& args,
    const FusedSgdArgs* args_on_device,
    const GradStatePointers& grad_state,
    CUstream_st* stream) {
  return step_all<Sgd>(
      tensors,
      count,
      args,
      args_on_device,
      grad_state,
      stream);
}

int fused_adam_cuda(
    const AdamTensor* tensors,
    int64_t count,
    const FusedAdamArgs& args,
    const FusedAdamArgs* args_on_device,
    const GradStatePointers& grad_state,
    CUstream_st* stream) {
  return step_all<Adam>(
      tensors,
      count,
      args,
      args_on_device,
      grad_state,
      stream);
}

}  // namespace tern
