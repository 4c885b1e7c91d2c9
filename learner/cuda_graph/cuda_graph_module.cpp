// Compiled to libtern_cuda_graph.so, which step_graph.cpp loads.

#include <map>
#include <optional>
#include <type_traits>

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "tern/learner/cuda_graph/device_graph.h"

namespace tern {
namespace {

// The stream on which this thread warms up and records. All graphs of a thread
// share one stream, because cuBLAS keeps a workspace (32 MB on an H100) for
// each stream on which it was used; a new stream per fit would add a workspace
// each time.
c10::cuda::CUDAStream recording_stream(c10::Device device) {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const c10::DeviceIndex index =
      device.has_index() ? device.index() : c10::cuda::current_device();
  const auto found = streams.find(index);
  if (found != streams.end()) return found->second;
  const auto stream =
      c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index);
  return streams.emplace(index, stream).first->second;
}

// Makes `after` wait for the work that is queued on `before`.
void order(c10::cuda::CUDAStream before, c10::cuda::CUDAStream after) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(after);
}

template <class F>
void attempt(const F& f) {
  try {
    f();
  } catch (...) {
    // Not needed in this state; the following attempts still run.
  }
}

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(c10::Device device) : stream_(recording_stream(device)) {}

  void warm_up(const std::function<void()>& work) override {
    const auto outer = c10::cuda::getCurrentCUDAStream(stream_.device_index());
    order(outer, stream_);
    try {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      work();
    } catch (...) {
      order(stream_, outer);  // wait for the launched work
      throw;
    }
    order(stream_, outer);
  }

  Tensors record(const std::function<Tensors()>& work) override {
    const c10::cuda::CUDAStreamGuard guard(stream_);
    c10::cuda::device_synchronize();
    // A recording has its own memory pool; frees the warm-up's cached memory.
    graph_.reset();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::MempoolId_t pool = at::cuda::graph_pool_handle();
    graph_.emplace();
    try {
      // Captures only this thread, because data loaders keep allocating pinned
      // memory.
      graph_->capture_begin(pool, cudaStreamCaptureModeThreadLocal);
      Tensors results = work();
      graph_->capture_end();
      return results;
    } catch (...) {
      give_up(pool);
      throw;
    }
  }

  void replay() override { graph_->replay(); }

 private:
  // Cleans up after a failed capture, which leaves LibTorch in capture mode.
  void give_up(c10::MempoolId_t pool) {
    namespace memory = c10::cuda::CUDACachingAllocator;
    // In LibTorch 2.11 this fails before it notifies the allocators.
    attempt([&] { graph_->capture_end(); });
    attempt([&] {
      memory::endAllocateToPool(stream_.device_index(), pool);
      memory::releasePool(stream_.device_index(), pool);
    });
    attempt([&] {
      at::HostAllocator* const host = at::getHostAllocator(at::kCUDA);
      host->end_allocate_to_pool(pool);
      host->release_pool(pool);
    });
    static_cast<void>(cudaGetLastError());
    graph_.reset();
    // The generator still considers itself captured and would raise errors
    // (pytorch#171263). A successful capture resets it.
    attempt([&] {
      at::cuda::CUDAGraph whole;
      whole.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      const auto something = torch::zeros({1}, stream_.device());
      whole.capture_end();
    });
  }

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
