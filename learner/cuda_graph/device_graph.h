#pragma once

#include <functional>
#include <memory>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// A sequence of kernels that is recorded once and then launched again with a
/// single call, on the same memory.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Runs `work` on the stream that `record` uses, so that one-time
  /// allocations, autotuning and library loading do not become part of the
  /// recording.
  virtual void warm_up(const std::function<void()>& work) = 0;
  /// Runs the host code of `work` and captures its kernels without running
  /// them.
  /// \return the result of `work`: tensors whose memory each `replay`
  ///         overwrites.
  /// \throws the exceptions of `work`, or c10::Error for an operation that
  ///         cannot be captured, such as one that synchronizes with the device;
  ///         then nothing is recorded.
  virtual Tensors record(const std::function<Tensors()>& work) = 0;
  /// Launches the recorded kernels on the current stream.
  virtual void replay() = 0;
};

using MakeDeviceGraph =
    std::function<std::unique_ptr<DeviceGraph>(torch::Device)>;

/// Creates a CUDA graph with its own memory pool. CUDA graphs need LibTorch's
/// CUDA library, which a Tern program does not load at start; the
/// implementation is therefore in libtern_cuda_graph.so. The environment
/// variable TERN_CUDA_GRAPH_LIBRARY can specify its path.
/// \throws c10::Error if the library is not found.
std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device);

/// The only function of libtern_cuda_graph.so. The caller deletes its result.
constexpr const char* kNewCudaGraph = "tern_new_cuda_graph";
using NewCudaGraph = DeviceGraph* (*)(c10::Device device);

}  // namespace tern
