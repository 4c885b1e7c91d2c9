#pragma once

#include <cstdint>

#include "tern/kernels/cpu_isa.h"
#include "tern/kernels/element_math.h"

struct CUstream_st;

// Between unscale_and_check.cpp, which knows tensors, and the kernels, which
// know pointers. Nothing of LibTorch or CUDA is included.
namespace tern {

struct GradTensor {
  void* data;
  int64_t size;
  ElementType type;
};

struct UnscaleLoops {
  /// Whether an infinity or a NaN is among the elements.
  bool (*has_non_finite)(const void* data, ElementType type, int64_t size);
  /// The same, and multiplies them all by `inv_scale`.
  bool (*unscale_and_check)(
      void* data,
      ElementType type,
      int64_t size,
      float inv_scale);
};

TERN_DECLARE_LOOPS(UnscaleLoops, unscale_loops)

/// `inv_scale` nullptr: check only, `data` is not written.
/// \return a cudaError_t. The list may be freed when the call returns.
int unscale_and_check_cuda(
    const GradTensor* grads,
    int64_t count,
    const float* inv_scale,
    float* found_inf,
    CUstream_st* stream);

}  // namespace tern
