// libtern_cuda_graph.so; cuda_graph.cpp opens it.

#include <optional>
#include <type_traits>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "tern/learner/cuda_graph.h"

namespace tern {
namespace {

// `after` does nothing before what `before` has to do now.
void order(c10::cuda::CUDAStream before, c10::cuda::CUDAStream after) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(after);
}

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(c10::Device device)
      : device_(device.index()),
        stream_(
            c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_)) {}

  void warm_up(const std::function<void()>& work) override {
    const auto outer = c10::cuda::getCurrentCUDAStream(device_);
    order(outer, stream_);
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      work();
    }
    order(stream_, outer);
  }

  Tensors record(const std::function<Tensors()>& work) override {
    // All work is done before: what is freed then may be taken again.
    c10::cuda::device_synchronize();
    graph_.emplace();
    Tensors results;
    const c10::cuda::CUDAStreamGuard guard(stream_);
    // Of this thread alone: loaders go on allocating pinned memory.
    graph_->capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      results = work();
      graph_->capture_end();
    } catch (...) {
      give_up();
      throw;
    }
    return results;
  }

  void replay() override { graph_->replay(); }

 private:
  // After a failure LibTorch is left in the middle of a recording.
  void give_up() {
    const auto pool = graph_->pool();
    try {
      graph_->capture_end();
    } catch (...) {
      // It fails before it has told the allocator.
      try {
        c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool);
      } catch (...) {
      }
    }
    static_cast<void>(cudaGetLastError());
    graph_.reset();
    // The generator still takes itself for recorded, and would refuse to go on
    // (pytorch#171263): a recording that succeeds sets it right.
    try {
      at::cuda::CUDAGraph whole;
      whole.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      const auto something =
          torch::zeros({1}, torch::Device(torch::kCUDA, device_));
      whole.capture_end();
    } catch (...) {
    }
  }

  c10::DeviceIndex device_;
  c10::cuda::CUDAStream stream_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

}  // namespace
}  // namespace tern

extern "C" tern::DeviceGraph* tern_new_cuda_graph(c10::Device device) {
  return new tern::CudaGraph(device);
}

static_assert(
    std::is_same_v<decltype(&tern_new_cuda_graph), tern::NewCudaGraph>);
