#include "tern/vision/models/detection/feature_pyramid.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include "tern/kernels/check.h"
#include "tern/vision/models/backbone.h"

namespace tern {

namespace {

void init_uniform(torch::nn::Conv2d& conv) {
  torch::nn::init::kaiming_uniform_(conv->weight, /*a=*/1);
  torch::nn::init::zeros_(conv->bias);
}

torch::nn::Conv2d halving(int64_t in, int64_t out) {
  torch::nn::Conv2d conv(
      torch::nn::Conv2dOptions(in, out, 3).stride(2).padding(1));
  init_uniform(conv);
  return conv;
}

// A convolution with bias, without normalization and activation.
ConvLayer plain_layer(int64_t in, int64_t out, int64_t kernel_size) {
  ConvLayer layer(
      in,
      out,
      ConvLayerOptions{
          .kernel_size = kernel_size,
          .norm = false,
          .end = LayerEnd::linear});
  torch::nn::Conv2d conv = layer->conv();
  init_uniform(conv);
  return layer;
}

}  // namespace

LastLevelP6P7Impl::LastLevelP6P7Impl(int64_t in_channels, int64_t out_channels)
    : in_channels_(in_channels), out_channels_(out_channels) {
  TERN_CHECK_VALUE(
      in_channels > 0 && out_channels > 0,
      "[LastLevelP6P7] in_channels is {} and out_channels is {}; expected both "
      "positive.",
      in_channels,
      out_channels);
  reset();
}

void LastLevelP6P7Impl::reset() {
  p6_ = register_module("p6", halving(in_channels_, out_channels_));
  p7_ = register_module("p7", halving(out_channels_, out_channels_));
}

Tensors LastLevelP6P7Impl::forward(const torch::Tensor& x) {
  torch::Tensor p6 = p6_->forward(x);
  torch::Tensor p7 = p7_->forward(p6.relu());
  return {std::move(p6), std::move(p7)};
}

FeaturePyramidNetworkImpl::FeaturePyramidNetworkImpl(
    std::vector<int64_t> in_channels,
    FeaturePyramidOptions options)
    : in_channels_(std::move(in_channels)), options_(options) {
  TERN_CHECK_VALUE(
      !in_channels_.empty() && std::ranges::min(in_channels_) > 0 &&
          options.out_channels > 0,
      "[FeaturePyramidNetwork] in_channels is {{{}}} and out_channels is {}; "
      "expected the channels of each feature map, and positive numbers.",
      fmt::join(in_channels_, ", "),
      options.out_channels);
  reset();
}

void FeaturePyramidNetworkImpl::reset() {
  const int64_t out = options_.out_channels;
  inner_blocks_ = register_module("inner_blocks", torch::nn::ModuleList());
  layer_blocks_ = register_module("layer_blocks", torch::nn::ModuleList());
  for (const int64_t in : in_channels_) {
    inner_blocks_->push_back(plain_layer(in, out, 1));
    layer_blocks_->push_back(plain_layer(out, out, 3));
  }
  const bool is_of_c5 = options_.extra == ExtraLevels::p6p7_of_c5;
  if (is_of_c5 || options_.extra == ExtraLevels::p6p7_of_p5) {
    extra_blocks_ = register_module(
        "extra_blocks",
        LastLevelP6P7(is_of_c5 ? in_channels_.back() : out, out));
  }
}

Tensors FeaturePyramidNetworkImpl::forward(const Tensors& features) {
  TERN_CHECK_VALUE(
      features.size() == in_channels_.size(),
      "[FeaturePyramidNetwork] got {} feature maps; expected {}, one for each "
      "number of channels.",
      features.size(),
      in_channels_.size());
  Tensors levels(features.size());
  torch::Tensor inner;
  for (size_t i = features.size(); i-- > 0;) {
    const torch::Tensor lateral =
        inner_blocks_->ptr<ConvLayerImpl>(i)->forward(features[i]);
    inner = inner.defined()
                ? lateral +
                      torch::upsample_nearest2d(inner, lateral.sizes().slice(2))
                : lateral;
    levels[i] = layer_blocks_->ptr<ConvLayerImpl>(i)->forward(inner);
  }
  if (options_.extra == ExtraLevels::max_pool) {
    levels.push_back(torch::max_pool2d(levels.back(), 1, 2));
  } else if (extra_blocks_) {
    const Tensors extra = extra_blocks_->forward(
        options_.extra == ExtraLevels::p6p7_of_c5 ? features.back()
                                                  : levels.back());
    levels.insert(levels.end(), extra.begin(), extra.end());
  }
  return levels;
}

}  // namespace tern
