#include "tern/vision/models/cnn/efficientnet.h"

#include <array>
#include <cmath>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "tern/kernels/check.h"
#include "tern/vision/models/cnn/mbconv.h"

namespace tern {

namespace {

struct MBConvStage {
  int64_t expansion, kernel_size, stride, channels, blocks;
};
// Table 1 of the paper.
constexpr std::array<MBConvStage, 7> kMBConvStages = {
    {{1, 3, 1, 16, 1},
     {6, 3, 2, 24, 2},
     {6, 5, 2, 40, 2},
     {6, 3, 2, 80, 3},
     {6, 5, 1, 112, 3},
     {6, 5, 2, 192, 4},
     {6, 3, 1, 320, 1}}};

}  // namespace

EfficientNetImpl::EfficientNetImpl(
    const EfficientNetShape& shape,
    const EfficientNetOptions& options)
    : shape_(shape), options_(options) {
  shape_.dropout = options.dropout.value_or(shape.dropout);
  check_network(
      "EfficientNet",
      options.num_classes,
      options.in_channels,
      shape_.dropout,
      options.stochastic_depth);
  TERN_CHECK_VALUE(
      shape.width > 0 && shape.width <= 100 && shape.depth > 0 &&
          shape.depth <= 100,
      "[EfficientNet] width is {} and depth is {}; expected factors above 0 "
      "and up to 100.",
      shape.width,
      shape.depth);
  reset();
}

void EfficientNetImpl::reset() {
  clear();
  const auto blocks_of = [&](const MBConvStage& stage) {
    return std::ceil(static_cast<double>(stage.blocks) * shape_.depth);
  };
  const auto scaled = [&](int64_t channels) {
    return round_to_eights(static_cast<double>(channels) * shape_.width);
  };
  double count = 0;
  int64_t channels = scaled(32);
  const auto end = LayerEnd::silu;
  add(ConvLayer(
          options_.in_channels,
          channels,
          ConvLayerOptions{.stride = 2, .end = end}),
      channels,
      /*stride=*/2);
  for (const MBConvStage& stage : kMBConvStages) {
    const int64_t out = scaled(stage.channels);
    Layers blocks;
    for (int64_t i = 0; i < blocks_of(stage); ++i) {
      blocks->push_back(MBConv(MBConvOptions{
          .in = channels,
          .wide = stage.expansion * channels,
          .out = out,
          .kernel_size = stage.kernel_size,
          .stride = i == 0 ? stage.stride : 1,
          .squeezed = std::max<int64_t>(1, channels / 4),
          .squeezed_end = end,
          .end = end}));
      ++count;
      channels = out;
    }
    add(blocks, channels, stage.stride);
  }
  const int64_t last = 4 * channels;
  add(ConvLayer(channels, last, ConvLayerOptions{.kernel_size = 1, .end = end}),
      last);
  register_module("features", features_);
  // torchvision divides a block's index by the number of blocks, not by the
  // last index.
  set_stochastic_depth(*this, options_.stochastic_depth * (1 - 1 / count));
  init_kaiming(*features_, /*by_fan_out=*/true);
  if (options_.num_classes > 0) {
    const torch::NoGradGuard no_grad;
    torch::nn::Linear linear(last, options_.num_classes);
    const double bound =
        1 / std::sqrt(static_cast<double>(options_.num_classes));
    linear->weight.uniform_(-bound, bound);
    linear->bias.zero_();
    classifier_ = torch::nn::AnyModule(register_module(
        "classifier",
        Layers(torch::nn::Dropout(shape_.dropout), linear)));
  }
  store_channels_last(*this);
}

EfficientNet efficientnet_b0(const EfficientNetOptions& options) {
  return named<EfficientNet>(
      "efficientnet_b0",
      options,
      EfficientNetShape{1, 1, 0.2});
}

EfficientNet efficientnet_b1(const EfficientNetOptions& options) {
  return named<EfficientNet>(
      "efficientnet_b1",
      options,
      EfficientNetShape{1, 1.1, 0.2});
}

EfficientNet efficientnet_b2(const EfficientNetOptions& options) {
  return named<EfficientNet>(
      "efficientnet_b2",
      options,
      EfficientNetShape{1.1, 1.2, 0.3});
}

EfficientNet efficientnet_b3(const EfficientNetOptions& options) {
  return named<EfficientNet>(
      "efficientnet_b3",
      options,
      EfficientNetShape{1.2, 1.4, 0.3});
}

}  // namespace tern
