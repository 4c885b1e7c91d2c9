#pragma once

#include <c10/core/Device.h>
#ifdef TERN_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace tern {

/// For a device that passed `check_device`: calls `cpu()`, or `cuda(stream)` on
/// the current stream of `device`, which must return a cudaError_t as an int.
/// Write `cuda` as a generic lambda
/// (`auto stream`), so that a build without CUDA needs no such function.
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
