#pragma once

#include <cstdint>

#include "tern/kernels/element_type.h"
#include "tern/kernels/fused_optimizer_args.h"

struct CUstream_st;

// Between fused_optimizer.cpp, which knows tensors, and the kernels, which
// know pointers. Nothing of LibTorch or CUDA is included.
namespace tern {

struct StepTensor {
  float* param;
  const void* grad;
  /// nullptr, or the float16 or bfloat16 copy of `param`.
  void* weight;
  float* step;
  int64_t size;
  ElementType grad_type, weight_type;
};

struct SgdTensor : StepTensor {
  float* momentum_buffer;
};

struct AdamTensor : StepTensor {
  float *exp_avg, *exp_avg_sq, *max_exp_avg_sq;
};

/// nullptr: absent. Both on the device of the tensors.
struct GradStatePointers {
  const float* grad_scale = nullptr;
  const float* found_inf = nullptr;
};

void fused_sgd_cpu(
    const SgdTensor* tensors,
    int64_t count,
    const FusedSgdArgs& args,
    const GradStatePointers& grad_state);
void fused_adam_cpu(
    const AdamTensor* tensors,
    int64_t count,
    const FusedAdamArgs& args,
    const GradStatePointers& grad_state);

/// \param args_on_device  nullptr, or device memory that the kernels read
///                        instead of `args`.
/// \return a cudaError_t. The list may be freed when the call returns.
int fused_sgd_cuda(
    const SgdTensor* tensors,
    int64_t count,
    const FusedSgdArgs& args,
    const FusedSgdArgs* args_on_device,
    const GradStatePointers& grad_state,
    CUstream_st* stream);
int fused_adam_cuda(
    const AdamTensor* tensors,
    int64_t count,
    const FusedAdamArgs& args,
    const FusedAdamArgs* args_on_device,
    const GradStatePointers& grad_state,
    CUstream_st* stream);

}  // namespace tern
