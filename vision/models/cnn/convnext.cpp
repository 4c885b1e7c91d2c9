#include "tern/vision/models/cnn/convnext.h"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

namespace tern {

namespace {

constexpr double kLayerScale = 1e-6;  // initial value
// torchvision truncates at 100 standard deviations, which has no effect.
constexpr double kInitialStddev = 0.02;

torch::nn::LayerNormOptions over(int64_t channels) {
  return torch::nn::LayerNormOptions({channels}).eps(1e-6);
}

// A convolution over non-overlapping patches.
torch::nn::Conv2d patches(int64_t in, int64_t out, int64_t size) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, size).stride(size));
}

// Filters each channel with a 7x7 kernel, then mixes the channels of each pixel
// with two linear layers: `x + layer_scale * block(x)`.
class ConvNeXtBlockImpl : public torch::nn::Cloneable<ConvNeXtBlockImpl>,
                          public StochasticDepth {
 public:
  explicit ConvNeXtBlockImpl(int64_t channels) : channels_(channels) {
    reset();
  }

  void reset() override {
    const int64_t wide = 4 * channels_;
    layer_scale_ = register_parameter(
        "layer_scale",
        torch::full({channels_, 1, 1}, kLayerScale));
    block_ = register_module(
        "block",
        Layers(
            torch::nn::Conv2d(torch::nn::Conv2dOptions(channels_, channels_, 7)
                                  .padding(3)
                                  .groups(channels_)),
            torch::nn::Identity(),
            LayerNorm2d(over(channels_)),
            Linear2d(channels_, wide),
            torch::nn::GELU(),
            Linear2d(wide, channels_)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = block_->forward(x) * layer_scale_;
    return dropped(y, is_training()) + x;
  }

 private:
  int64_t channels_;
  torch::Tensor layer_scale_;
  Layers block_{nullptr};
};
TORCH_MODULE(ConvNeXtBlock);

}  // namespace

ConvNeXtImpl::ConvNeXtImpl(
    const ConvNeXtShape& shape,
    const ConvNeXtOptions& options)
    : shape_(shape), options_(options) {
  shape_.stochastic_depth =
      options.stochastic_depth.value_or(shape.stochastic_depth);
  check_network(
      "ConvNeXt",
      options.num_classes,
      options.in_channels,
      /*dropout=*/0,
      shape_.stochastic_depth);
  check_sizes("ConvNeXt", "blocks", shape.blocks);
  check_sizes("ConvNeXt", "channels", shape.channels, 10'000);
  reset();
}

void ConvNeXtImpl::reset() {
  clear(/*least_side=*/32);
  const auto& [channels, blocks, stochastic_depth] = shape_;
  for (size_t i = 0; i < channels.size(); ++i) {
    const int64_t width = channels[i];
    const Layers smaller = i == 0 ? Layers(
                                        patches(options_.in_channels, width, 4),
                                        LayerNorm2d(over(width)))
                                  : Layers(
                                        LayerNorm2d(over(channels[i - 1])),
                                        patches(channels[i - 1], width, 2));
    add(smaller, width, /*stride=*/2);
    Layers stage;
    for (int64_t j = 0; j < blocks[i]; ++j) {
      stage->push_back(ConvNeXtBlock(width));
    }
    add(stage, width);
  }
  register_module("features", features_);
  set_stochastic_depth(*this, stochastic_depth);
  if (options_.num_classes > 0) {
    classifier_ = torch::nn::AnyModule(register_module(
        "classifier",
        Layers(
            torch::nn::LayerNorm(over(channels.back())),
            torch::nn::Identity(),
            torch::nn::Linear(channels.back(), options_.num_classes))));
  }
  const torch::NoGradGuard no_grad;
  for (const auto& item : named_parameters()) {
    torch::Tensor weight = item.value();
    if (weight.dim() == 2 || weight.dim() == 4) {
      weight.normal_(0, kInitialStddev);
    } else if (item.key().ends_with(".bias")) {
      weight.zero_();
    }
  }
  store_channels_last(*this);
}

ConvNeXt convnext_tiny(const ConvNeXtOptions& options) {
  return named<ConvNeXt>(
      "convnext_tiny",
      options,
      ConvNeXtShape{{96, 192, 384, 768}, {3, 3, 9, 3}, 0.1});
}

ConvNeXt convnext_small(const ConvNeXtOptions& options) {
  return named<ConvNeXt>(
      "convnext_small",
      options,
      ConvNeXtShape{{96, 192, 384, 768}, {3, 3, 27, 3}, 0.4});
}

ConvNeXt convnext_base(const ConvNeXtOptions& options) {
  return named<ConvNeXt>(
      "convnext_base",
      options,
      ConvNeXtShape{{128, 256, 512, 1024}, {3, 3, 27, 3}, 0.5});
}

}  // namespace tern
