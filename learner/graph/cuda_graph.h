#pragma once

#include <memory>

#include <torch/types.h>

#include "tern/learner/graph/device_graph.h"

namespace tern {

/// A CUDA graph with memory of its own. It is part of LibTorch's CUDA library,
/// which a program of Tern starts without, so it comes from
/// libtern_cuda_graph.so; TERN_CUDA_GRAPH_LIBRARY may name it.
/// \throws c10::Error if there is no such library.
std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device);

/// The one function of libtern_cuda_graph.so. Its result is `delete`d.
constexpr const char* kNewCudaGraph = "tern_new_cuda_graph";
using NewCudaGraph = DeviceGraph* (*)(c10::Device device);

}  // namespace tern
