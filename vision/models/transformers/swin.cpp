#include "tern/vision/models/transformers/swin.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "tern/kernels/check.h"
#include "tern/vision/models/transformers/attention.h"
#include "tern/vision/models/transformers/window_attention.h"

namespace tern {

namespace {

torch::nn::LayerNormOptions over(int64_t channels) {
  return torch::nn::LayerNormOptions({channels});
}

// Halves height and width and doubles the channels.
class PatchMergingImpl : public torch::nn::Cloneable<PatchMergingImpl> {
 public:
  explicit PatchMergingImpl(int64_t in) : in_(in) { reset(); }
  void reset() override {
    reduction_ = register_module(
        "reduction",
        Linear2d(torch::nn::LinearOptions(4 * in_, 2 * in_).bias(false)));
    norm_ = register_module("norm", LayerNorm2d(over(4 * in_)));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const int64_t right = x.size(3) % 2, below = x.size(2) % 2;
    const torch::Tensor even =
        right + below > 0 ? torch::constant_pad_nd(x, {0, right, 0, below}) : x;
    const auto every_other = [&](int64_t row, int64_t column) {
      return even.slice(2, row, {}, 2).slice(3, column, {}, 2);
    };
    return reduction_->forward(norm_->forward(torch::cat(
        {every_other(0, 0),
         every_other(1, 0),
         every_other(0, 1),
         every_other(1, 1)},
        1)));
  }

 private:
  int64_t in_;
  Linear2d reduction_{nullptr};
  LayerNorm2d norm_{nullptr};
};
TORCH_MODULE(PatchMerging);

using SwinBlockImpl = OverChannelsImpl<TransformerBlockImpl>;
TORCH_MODULE(SwinBlock);

}  // namespace

SwinImpl::SwinImpl(const SwinShape& shape, const SwinOptions& options)
    : shape_(shape), options_(options) {
  check_network(
      "Swin",
      options.num_classes,
      options.in_channels,
      std::max(options.dropout, options.attention_dropout),
      options.stochastic_depth);
  check_sizes("Swin", "blocks", shape.blocks);
  for (size_t i = 0; i < shape.heads.size(); ++i) {
    TERN_CHECK_VALUE(
        shape.width > 0 && shape.width <= 10'000 && shape.heads[i] > 0 &&
            (shape.width << i) % shape.heads[i] == 0,
        "[Swin] the width is {} and heads is {{{}}}; expected heads that "
        "divide the width of their stage, which doubles with each stage.",
        shape.width,
        fmt::join(shape.heads, ", "));
  }
  reset();
}

void SwinImpl::reset() {
  clear(/*least_side=*/4);
  const auto& blocks = shape_.blocks;
  int64_t width = shape_.width;
  add(Layers(
          torch::nn::Conv2d(
              torch::nn::Conv2dOptions(options_.in_channels, width, 4)
                  .stride(4)),
          torch::nn::Identity(),
          LayerNorm2d(over(width))),
      width,
      /*stride=*/2);
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (i > 0) {
      add(PatchMerging(width), 2 * width, /*stride=*/2);
      width *= 2;
    }
    WindowAttentionOptions attention{
        .width = width,
        .heads = shape_.heads[i],
        .dropout = options_.attention_dropout};
    Layers stage;
    for (int64_t j = 0; j < blocks[i]; ++j) {
      attention.is_shifted = j % 2 == 1;
      stage->push_back(SwinBlock(TransformerBlockOptions{
          .width = width,
          .attention =
              [attention] {
                return torch::nn::AnyModule(WindowAttention(attention));
              },
          .dropout = options_.dropout}));
    }
    add(stage, width);
  }
  register_module("features", features_);
  set_stochastic_depth(*this, options_.stochastic_depth);
  norm_ = register_module("norm", LayerNorm2d(over(width)));
  if (options_.num_classes > 0) {
    classifier_ = torch::nn::AnyModule(register_module(
        "head",
        torch::nn::Linear(width, options_.num_classes)));
  }
  init_linear_layers(*this);
  store_channels_last(*this);
}

torch::Tensor SwinImpl::stage(size_t index, const torch::Tensor& x) {
  const torch::Tensor y = FeatureNetwork::stage(index, x);
  return index + 1 == shape_.blocks.size() ? norm_->forward(y) : y;
}

Swin swin_t(const SwinOptions& options) {
  return named<Swin>("swin_t", options, SwinShape{});
}

}  // namespace tern
