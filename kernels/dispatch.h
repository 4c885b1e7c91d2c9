#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/types.h>
#ifdef TERN_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

#include "tern/kernels/kernel_args.h"

// Shared by the public functions of kernels/: argument checks with their
// messages, and the dispatch to a device.
namespace tern {

/// Returns, for example, "[2, 3] kLong on cuda:0", or "undefined".
std::string describe(const at::Tensor& tensor);

/// True if the numbers of a tensor can be read as floats by address.
inline bool is_float_on_cpu(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat && tensor.is_cpu();
}

/// \param index  Index of `tensor` in the list `name`, if it is in a list.
/// \throws c10::ValueError unless `tensor` is a single kFloat on `device`.
void check_device_scalar(
    const char* where,
    const char* name,
    const at::Tensor& tensor,
    torch::Device device,
    std::optional<size_t> index = {});

/// \throws c10::NotImplementedError unless `device` is a CPU or a CUDA device
///         that this build has kernels for.
void check_device(const char* where, torch::Device device);

/// Returns the ElementType of kFloat, kDouble, kHalf or kBFloat16; unset for
/// other dtypes.
inline std::optional<ElementType> element_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return ElementType::float32;
    case at::kDouble:
      return ElementType::float64;
    case at::kHalf:
      return ElementType::float16;
    case at::kBFloat16:
      return ElementType::bfloat16;
    default:
      return std::nullopt;
  }
}

/// For a device that passed `check_device`: calls `cpu()`, or `cuda(stream)`
/// with the current stream of `device`, which must return a cudaError_t as an
/// int. Write `cuda` as a generic lambda (`auto stream`), so that a build
/// without CUDA does not need its functions.
template <class Cpu, class Cuda>
void dispatch_device(c10::Device device, const Cpu& cpu, const Cuda& cuda) {
  if (device.is_cpu()) {
    cpu();
    return;
  }
#ifdef TERN_WITH_CUDA
  const c10::cuda::CUDAGuard guard(device);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
  C10_CUDA_CHECK(static_cast<cudaError_t>(cuda(stream)));
#else
  (void)cuda;
#endif
}

}  // namespace tern
