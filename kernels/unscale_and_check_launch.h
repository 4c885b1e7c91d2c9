#pragma once

#include <cstdint>

#include "tern/kernels/element_type.h"

struct CUstream_st;

// Between unscale_and_check.cpp, which knows tensors, and the kernels, which
// know pointers. Nothing of LibTorch or CUDA is included.
namespace tern {

struct GradTensor {
  void* data;
  int64_t size;
  ElementType type;
};

/// `inv_scale` nullptr: check only, `data` is not written.
void unscale_and_check_cpu(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf);

/// \return a cudaError_t. The list may be freed when the call returns.
int unscale_and_check_cuda(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf,
    CUstream_st* stream);

}  // namespace tern
