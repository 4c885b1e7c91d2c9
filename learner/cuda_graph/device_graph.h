#pragma once

#include <functional>
#include <memory>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// Work of a device that is recorded once and then started again with a single
/// call, on the same memory.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Does `work` where `record` will: what a device allocates, tunes and loads
  /// the first time then is no part of the recording.
  virtual void warm_up(const std::function<void()>& work) = 0;
  /// Runs `work` and records what it asks of the device, which is not done.
  /// \return what `work` returned: memory that each `replay` writes.
  /// \throws what `work` throws, or c10::Error for something that cannot be
  ///         recorded, as a wait for the device; nothing is recorded then.
  virtual Tensors record(const std::function<Tensors()>& work) = 0;
  /// Does what was recorded, behind what the current stream has to do.
  virtual void replay() = 0;
};

using MakeDeviceGraph =
    std::function<std::unique_ptr<DeviceGraph>(torch::Device)>;

/// A CUDA graph with memory of its own. It is part of LibTorch's CUDA library,
/// which a program of Tern starts without, so it comes from
/// libtern_cuda_graph.so; TERN_CUDA_GRAPH_LIBRARY may name it.
/// \throws c10::Error if there is no such library.
std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device);

/// The one function of libtern_cuda_graph.so. Its result is `delete`d.
constexpr const char* kNewCudaGraph = "tern_new_cuda_graph";
using NewCudaGraph = DeviceGraph* (*)(c10::Device device);

}  // namespace tern
