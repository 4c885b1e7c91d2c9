#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

struct WindowAttentionOptions {
  int64_t width, heads;  // channels, and how many heads share them
  int64_t window = 7;    // cells a side
  bool is_shifted = false;
  double dropout = 0;  // of the attention
};

/// Attention among the cells of each window of a map, with a learnt bias for
/// each distance, as in a Swin Transformer: [N, H, W, width] -> the same shape.
/// Shifted, the windows lie half a window further down and right, and the cells
/// that this leaves over at the edges form windows of their own. A map whose
/// sides are no multiples of the window is padded with zeros.
class WindowAttentionImpl : public torch::nn::Cloneable<WindowAttentionImpl> {
 public:
  explicit WindowAttentionImpl(const WindowAttentionOptions& options)
      : options_(options) {
    reset();
  }
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

 private:
  WindowAttentionOptions options_;
  torch::Tensor table_, index_;  // of the biases
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr};
};
TORCH_MODULE(WindowAttention);

}  // namespace tern
