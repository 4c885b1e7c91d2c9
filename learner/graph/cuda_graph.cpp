#include "tern/learner/graph/cuda_graph.h"

#include "tern/kernels/open_module.h"

namespace tern {

std::unique_ptr<DeviceGraph> make_cuda_graph(torch::Device device) {
  static const auto make = reinterpret_cast<NewCudaGraph>(open_module(
      "libtern_cuda_graph.so",
      "TERN_CUDA_GRAPH_LIBRARY",
      "a CUDA graph",
      kNewCudaGraph));
  return std::unique_ptr<DeviceGraph>(make(device));
}

}  // namespace tern
