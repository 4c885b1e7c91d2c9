#include "tern/vision/models/cnn/mobilenet_v3.h"

#include <vector>

#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "tern/vision/models/cnn/mbconv.h"

namespace tern {

namespace {

constexpr double kEps = 1e-3, kMomentum = 0.01;  // of BatchNorm

struct MobileBlock {
  int64_t kernel_size, wide, channels;
  bool has_squeeze;
  LayerEnd end;
  int64_t stride;
};

constexpr LayerEnd kReLU = LayerEnd::relu, kSwish = LayerEnd::hard_swish;

// Table 1 of the paper.
const std::vector<MobileBlock>& large_blocks() {
  static const std::vector<MobileBlock> blocks = {
      {3, 16, 16, false, kReLU, 1},
      {3, 64, 24, false, kReLU, 2},
      {3, 72, 24, false, kReLU, 1},
      {5, 72, 40, true, kReLU, 2},
      {5, 120, 40, true, kReLU, 1},
      {5, 120, 40, true, kReLU, 1},
      {3, 240, 80, false, kSwish, 2},
      {3, 200, 80, false, kSwish, 1},
      {3, 184, 80, false, kSwish, 1},
      {3, 184, 80, false, kSwish, 1},
      {3, 480, 112, true, kSwish, 1},
      {3, 672, 112, true, kSwish, 1},
      {5, 672, 160, true, kSwish, 2},
      {5, 960, 160, true, kSwish, 1},
      {5, 960, 160, true, kSwish, 1}};
  return blocks;
}

// Table 2.
const std::vector<MobileBlock>& small_blocks() {
  static const std::vector<MobileBlock> blocks = {
      {3, 16, 16, true, kReLU, 2},
      {3, 72, 24, false, kReLU, 2},
      {3, 88, 24, false, kReLU, 1},
      {5, 96, 40, true, kSwish, 2},
      {5, 240, 40, true, kSwish, 1},
      {5, 240, 40, true, kSwish, 1},
      {5, 120, 48, true, kSwish, 1},
      {5, 144, 48, true, kSwish, 1},
      {5, 288, 96, true, kSwish, 2},
      {5, 576, 96, true, kSwish, 1},
      {5, 576, 96, true, kSwish, 1}};
  return blocks;
}

}  // namespace

MobileNetV3Impl::MobileNetV3Impl(
    bool is_large,
    const MobileNetV3Options& options)
    : is_large_(is_large), options_(options) {
  check_network(
      "MobileNetV3",
      options.num_classes,
      options.in_channels,
      options.dropout);
  reset();
}

void MobileNetV3Impl::reset() {
  clear();
  const ConvLayerOptions layer{
      .end = kSwish,
      .eps = kEps,
      .momentum = kMomentum};
  ConvLayerOptions stem = layer, pointwise = layer;
  stem.stride = 2;
  pointwise.kernel_size = 1;
  int64_t channels = 16;
  add(ConvLayer(options_.in_channels, channels, stem), channels, /*stride=*/2);
  for (const MobileBlock& block : is_large_ ? large_blocks() : small_blocks()) {
    const int64_t squeezed =
        round_to_eights(static_cast<double>(block.wide) / 4);
    add(MBConv(MBConvOptions{
            .in = channels,
            .wide = block.wide,
            .out = block.channels,
            .kernel_size = block.kernel_size,
            .stride = block.stride,
            .squeezed = block.has_squeeze ? squeezed : 0,
            .gate = LayerEnd::hard_sigmoid,
            .end = block.end,
            .eps = kEps,
            .momentum = kMomentum}),
        block.channels,
        block.stride);
    channels = block.channels;
  }
  const int64_t last = 6 * channels;
  add(ConvLayer(channels, last, pointwise), last);
  register_module("features", features_);
  init_kaiming(*features_, /*by_fan_out=*/true);
  if (options_.num_classes > 0) {
    const int64_t hidden = is_large_ ? 1280 : 1024;
    torch::nn::Linear first(last, hidden);
    torch::nn::Linear second(hidden, options_.num_classes);
    for (const torch::nn::Linear& linear : {first, second}) {
      torch::nn::init::normal_(linear->weight, 0, 0.01);
      torch::nn::init::zeros_(linear->bias);
    }
    classifier_ = torch::nn::AnyModule(register_module(
        "classifier",
        Layers(
            first,
            torch::nn::Functional(torch::hardswish),
            torch::nn::Dropout(options_.dropout),
            second)));
  }
  store_channels_last(*this);
}

MobileNetV3 mobilenet_v3_small(const MobileNetV3Options& options) {
  return named<MobileNetV3>("mobilenet_v3_small", options, /*is_large=*/false);
}

MobileNetV3 mobilenet_v3_large(const MobileNetV3Options& options) {
  return named<MobileNetV3>("mobilenet_v3_large", options, /*is_large=*/true);
}

}  // namespace tern
