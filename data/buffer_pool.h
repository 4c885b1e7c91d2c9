#pragma once

#include <mutex>
#include <vector>

#include <torch/types.h>

namespace tern {

/// Hands out uninitialised CPU tensors and takes them back by itself: a tensor
/// is lent again once nobody else holds it or a view of it. A loader in steady
/// state therefore allocates nothing. Safe to call from many threads.
class BufferPool {
 public:
  /// \param pin_memory  Page-locked memory for copies to a GPU. It comes from
  ///                    LibTorch's own cache, which knows when a copy that is
  ///                    still under way has ended.
  explicit BufferPool(bool pin_memory = false) : pin_memory_(pin_memory) {}

  torch::Tensor empty(c10::IntArrayRef sizes, torch::ScalarType dtype);

 private:
  bool pin_memory_;
  std::mutex mutex_;
  std::vector<torch::Tensor> tensors_;
};

}  // namespace tern
