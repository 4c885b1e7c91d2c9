#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <ucontext.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

// Runs the kernels of the .cu files included below on the CPU. Blocks run one
// after the other; each thread of a block is a context that stops at
// __syncthreads. Every other block runs its threads in reverse order. This
// shows which elements a kernel reads and writes, not that a GPU's compiler and
// memory behave the same.
#define __shared__ static
#include <cuda_runtime.h>
#undef __launch_bounds__
#define __launch_bounds__(...)

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace tern::cuda_on_cpu {

class Block {
 public:
  static Block& running() {
    static Block block;
    return block;
  }

  void run(unsigned threads, const std::function<void()>& body) {
    body_ = &body;
    is_done_.assign(threads, false);
    contexts_.resize(threads);
    if (stacks_size_ < threads) {
      stacks_ = std::make_unique_for_overwrite<char[]>(threads * kStack);
      stacks_size_ = threads;
    }
    for (unsigned i = 0; i < threads; ++i) {
      getcontext(&contexts_[i]);
      contexts_[i].uc_stack = {
          .ss_sp = stacks_.get() + i * kStack,
          .ss_flags = 0,
          .ss_size = kStack};
      contexts_[i].uc_link = &scheduler_;
      makecontext(
          &contexts_[i],
          [] { running().thread(); },
          0);
    }
    for (unsigned done = 0; done < threads;) {
      ASSERT_EQ(done, 0u)
          << "some threads of a block returned while others wait";
      for (unsigned i = 0; i < threads; ++i) {
        now_ = blockIdx.x % 2 == 0 ? threads - 1 - i : i;
        threadIdx.x = now_;
        swapcontext(&scheduler_, &contexts_[now_]);
        done += is_done_[now_];
      }
    }
  }

  void wait_for_all() { swapcontext(&contexts_[now_], &scheduler_); }

 private:
  static constexpr size_t kStack = size_t{1} << 17;

  void thread() {
    (*body_)();
    is_done_[now_] = true;
  }

  const std::function<void()>* body_ = nullptr;
  std::vector<bool> is_done_;
  std::vector<ucontext_t> contexts_;
  ucontext_t scheduler_{};
  std::unique_ptr<char[]> stacks_;
  size_t stacks_size_ = 0;
  unsigned now_ = 0;
};

/// Size of all arguments of the last launch, which copies them.
inline size_t argument_bytes = 0;

template <class... Params, class... Args>
cudaError_t launch_on_cpu(
    const cudaLaunchConfig_t* config,
    void (*kernel)(Params...),
    const Args&... args) {
  if (config->gridDim.x == 0) return cudaErrorInvalidConfiguration;
  argument_bytes = (sizeof(Args) + ...);
  gridDim = config->gridDim;
  blockDim = config->blockDim;
  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) {
    Block::running().run(blockDim.x, [&] { kernel(args...); });
  }
  return cudaSuccess;
}

}  // namespace tern::cuda_on_cpu

inline void __syncthreads() {
  tern::cuda_on_cpu::Block::running().wait_for_all();
}
template <class T>
T atomicMax(T* at, T value) {
  return std::exchange(*at, std::max(*at, value));
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}

#define cudaLaunchKernelEx ::tern::cuda_on_cpu::launch_on_cpu
