#include "tern/vision/models/transformers/window_attention.h"

#include <array>

#include "tern/vision/models/transformers/attention.h"

namespace tern {

namespace {

using Sides = std::array<int64_t, 2>;

// Converts [N, H, W, C] to [N, windows, cells of a window, C]; from_windows
// converts back.
torch::Tensor to_windows(const torch::Tensor& x, int64_t window) {
  return x.unflatten(2, {-1, window})
      .unflatten(1, {-1, window})
      .transpose(2, 3)
      .flatten(3, 4)
      .flatten(1, 2);
}

torch::Tensor
from_windows(const torch::Tensor& x, int64_t window, int64_t height) {
  return x.unflatten(2, {window, window})
      .unflatten(1, {height / window, -1})
      .transpose(2, 3)
      .flatten(3, 4)
      .flatten(1, 2);
}

// Returns a mask that separates those cells of a window that were not adjacent
// before the shift: [windows, 1, cells, cells].
torch::Tensor apart(
    const Sides& size,
    const Sides& shift,
    int64_t window,
    const torch::TensorOptions& options) {
  const auto region_of = [&](size_t side) {
    const int64_t n = size[side];
    const torch::Tensor at = torch::arange(n, options.dtype(torch::kLong));
    if (shift[side] == 0) return torch::zeros_like(at);
    return (at >= n - window).to(torch::kLong) + (at >= n - shift[side]);
  };
  const torch::Tensor region = 3 * region_of(0).unsqueeze(1) + region_of(1);
  const torch::Tensor cells =
      to_windows(region.unsqueeze(0).unsqueeze(-1), window)[0];
  // torchvision's value; exp(-100) is negligible.
  return (cells != cells.transpose(1, 2)).to(options).mul(-100).unsqueeze(1);
}

}  // namespace

void WindowAttentionImpl::reset() {
  const auto [width, heads, window, is_shifted, dropout] = options_;
  const int64_t last = window - 1, span = 2 * window - 1;  // of distances
  table_ = register_parameter(
      "relative_position_bias_table",
      0.02 * torch::randn({span * span, heads}));
  const torch::Tensor cell = torch::arange(window * window);
  const auto distance = [&](const torch::Tensor& at) {
    return at.unsqueeze(1) - at + last;
  };
  const torch::Tensor index = span * distance(cell.floor_divide(window)) +
                              distance(cell.remainder(window));
  index_ = register_buffer("relative_position_index", index.flatten());
  qkv_ = register_module("qkv", torch::nn::Linear(width, 3 * width));
  proj_ = register_module("proj", torch::nn::Linear(width, width));
}

torch::Tensor WindowAttentionImpl::forward(const torch::Tensor& x) {
  const int64_t window = options_.window, cells = window * window;
  const int64_t height = x.size(1), width = x.size(2);
  const auto padding = [&](int64_t side) {
    return (window - side % window) % window;
  };
  const int64_t below = padding(height), right = padding(width);
  const bool is_padded = below + right > 0;
  torch::Tensor y =
      is_padded ? torch::constant_pad_nd(x, {0, 0, 0, right, 0, below}) : x;

  const Sides size = {height + below, width + right};
  Sides shift = {};
  for (size_t i = 0; i < shift.size(); ++i) {
    if (options_.is_shifted && size[i] > window) shift[i] = window / 2;
  }
  const bool is_shifted = shift[0] + shift[1] > 0;
  // Module::to(dtype) also converts integer buffers, so this converts back.
  torch::Tensor bias = table_.index_select(0, index_.to(torch::kLong))
                           .view({cells, cells, -1})
                           .permute({2, 0, 1})
                           .unsqueeze(0);
  if (is_shifted) {
    y = y.roll({-shift[0], -shift[1]}, {1, 2});
    bias = bias + apart(size, shift, window, bias.options());
  }
  const double dropout = is_training() ? options_.dropout : 0;
  y = attend(
      qkv_->forward(to_windows(y, window)),
      options_.heads,
      bias,
      dropout);
  y = from_windows(proj_->forward(y), window, size[0]);
  if (is_shifted) y = y.roll(shift, {1, 2});
  return is_padded ? y.slice(1, 0, height).slice(2, 0, width) : y;
}

}  // namespace tern
