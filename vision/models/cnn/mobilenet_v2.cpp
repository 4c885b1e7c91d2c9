#include "tern/vision/models/cnn/mobilenet_v2.h"

#include <array>

#include <torch/nn/init.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

struct BlockShape {
  int64_t expansion, channels, count, stride;
};
// Table 2 of the paper.
constexpr std::array<BlockShape, 7> kBlocks = {
    {{1, 16, 1, 1},
     {6, 24, 2, 2},
     {6, 32, 3, 2},
     {6, 64, 4, 2},
     {6, 96, 3, 1},
     {6, 160, 3, 2},
     {6, 320, 1, 1}}};
constexpr int64_t kFeatures = 1280;

ConvLayer pointwise(int64_t in, int64_t out) {
  return ConvLayer(
      in,
      out,
      ConvLayerOptions{.kernel_size = 1, .end = LayerEnd::relu6});
}

// Increases the channels with a 1x1 convolution, filters each channel with a
// 3x3 kernel and reduces the channels with a 1x1 convolution. Adds its input if
// the shapes are equal.
class InvertedResidualImpl : public torch::nn::Cloneable<InvertedResidualImpl> {
 public:
  InvertedResidualImpl(
      int64_t in,
      int64_t out,
      int64_t stride,
      int64_t expansion,
      int64_t dilation)
      : in_(in),
        out_(out),
        stride_(stride),
        expansion_(expansion),
        dilation_(dilation) {
    reset();
  }

  void reset() override {
    const int64_t wide = in_ * expansion_;
    torch::nn::Sequential conv;
    if (expansion_ != 1) conv->push_back(pointwise(in_, wide));
    conv->push_back(ConvLayer(
        wide,
        wide,
        ConvLayerOptions{
            .stride = stride_,
            .dilation = dilation_,
            .groups = wide,
            .end = LayerEnd::relu6}));
    conv->push_back(
        torch::nn::Conv2d(torch::nn::Conv2dOptions(wide, out_, 1).bias(false)));
    conv->push_back(torch::nn::BatchNorm2d(out_));
    conv_ = register_module("conv", conv);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = conv_->forward(x);
    return stride_ == 1 && in_ == out_ ? x + y : y;
  }

 private:
  int64_t in_, out_, stride_, expansion_, dilation_;
  torch::nn::Sequential conv_{nullptr};
};
TORCH_MODULE(InvertedResidual);

}  // namespace

MobileNetV2Impl::MobileNetV2Impl(const MobileNetV2Options& options)
    : options_(options) {
  check_network(
      "mobilenet_v2",
      options.num_classes,
      options.in_channels,
      options.dropout);
  TORCH_CHECK_VALUE(
      options.num_classes == 0 || options.last_convolution,
      "[mobilenet_v2] last_convolution is false in a network with a "
      "classifier, which needs it; expected num_classes = 0 with it.");
  reset();
}

void MobileNetV2Impl::reset() {
  clear();
  const auto end = LayerEnd::relu6;
  int64_t channels = 32;
  add(ConvLayer(
          options_.in_channels,
          channels,
          ConvLayerOptions{.stride = 2, .end = end}),
      channels,
      /*stride=*/2);
  std::vector<int64_t> strides;
  for (const BlockShape& shape : kBlocks) strides.push_back(shape.stride);
  const auto dilations =
      dilate_layers(options_.output_stride, /*stem_stride=*/2, strides);
  for (size_t layer = 0; layer < kBlocks.size(); ++layer) {
    const BlockShape& shape = kBlocks[layer];
    const auto [stride, first, rest] = dilations[layer];
    for (int64_t i = 0; i < shape.count; ++i) {
      add(InvertedResidual(
              channels,
              shape.channels,
              i == 0 ? stride : 1,
              shape.expansion,
              i == 0 ? first : rest),
          shape.channels,
          i == 0 ? shape.stride : 1);
      channels = shape.channels;
    }
  }
  if (options_.last_convolution) {
    add(pointwise(channels, kFeatures), kFeatures);
  }
  register_module("features", features_);
  init_kaiming(*features_, /*by_fan_out=*/true);
  if (options_.num_classes > 0) {
    torch::nn::Linear linear(kFeatures, options_.num_classes);
    torch::nn::init::normal_(linear->weight, 0, 0.01);
    torch::nn::init::zeros_(linear->bias);
    classifier_ = torch::nn::AnyModule(register_module(
        "classifier",
        Layers(torch::nn::Dropout(options_.dropout), linear)));
  }
  store_channels_last(*this);
}

MobileNetV2 mobilenet_v2(const MobileNetV2Options& options) {
  return named<MobileNetV2>("mobilenet_v2", options);
}

}  // namespace tern
