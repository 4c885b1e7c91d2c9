#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

struct WindowAttentionOptions {
  int64_t width, heads;  // channels; attention heads
  int64_t window = 7;    // cells per side
  bool is_shifted = false;
  double dropout = 0;  // of the attention weights
};

/// Attention among the cells of each window of a feature map, with a learned
/// bias for each relative position, as in a Swin Transformer. [N, H, W, width]
/// -> the same shape.
///
/// Shifted windows are half a window further down and right; the remaining
/// cells at the edges form separate windows. A map whose sides are not
/// multiples of the window is padded with zeros.
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
  torch::Tensor table_, index_;  // biases; for each pair of cells, its index
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr};
};
TORCH_MODULE(WindowAttention);

}  // namespace tern
