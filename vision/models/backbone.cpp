#include "tern/vision/models/backbone.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/kernels/check.h"

namespace tern {

ConvLayerImpl::ConvLayerImpl(int64_t in, int64_t out, ConvLayerOptions options)
    : in_(in), out_(out), options_(options) {
  reset();
}

void ConvLayerImpl::reset() {
  conv_ = register_module(
      "0",
      torch::nn::Conv2d(
          torch::nn::Conv2dOptions(in_, out_, options_.kernel_size)
              .stride(options_.stride)
              .padding(options_.dilation * (options_.kernel_size / 2))
              .dilation(options_.dilation)
              .groups(options_.groups)
              .bias(!options_.norm)));
  if (options_.norm) norm_ = register_module("1", torch::nn::BatchNorm2d(out_));
}

torch::Tensor ConvLayerImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = conv_->forward(x);
  if (norm_) y = norm_->forward(y);
  switch (options_.end) {
    case LayerEnd::linear:
      return y;
    case LayerEnd::relu:
      return y.relu_();
    case LayerEnd::relu6:
      return torch::hardtanh_(y, 0, 6);
  }
  return y;
}

void store_channels_last(torch::nn::Module& module) {
  for (torch::Tensor& weight : module.parameters()) {
    if (weight.dim() == 4) {
      weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
    }
  }
}

void init_kaiming(torch::nn::Module& module, bool by_fan_out) {
  const auto init = [&](torch::Tensor weight, torch::Tensor bias) {
    torch::nn::init::kaiming_normal_(
        std::move(weight),
        0,
        by_fan_out ? torch::nn::init::FanModeType(torch::kFanOut)
                   : torch::nn::init::FanModeType(torch::kFanIn),
        torch::kReLU);
    if (bias.defined()) torch::nn::init::zeros_(std::move(bias));
  };
  // Without the module itself, which may still be in its constructor.
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* conv = child->as<torch::nn::Conv2d>()) {
      init(conv->weight, conv->bias);
    } else if (auto* linear = child->as<torch::nn::Linear>()) {
      init(linear->weight, linear->bias);
    }
  }
}

std::vector<LayerDilation> dilate_layers(
    int64_t output_stride,
    int64_t stem_stride,
    const std::vector<int64_t>& strides) {
  TERN_CHECK_VALUE(
      output_stride == 8 || output_stride == 16 || output_stride == 32,
      "[dilate_layers] output_stride is {}; expected 8, 16 or 32.",
      output_stride);
  std::vector<LayerDilation> layers;
  int64_t reached = stem_stride, dilation = 1;
  for (const int64_t stride : strides) {
    const bool strides_on = reached * stride <= output_stride;
    LayerDilation layer{.stride = strides_on ? stride : 1, .first = dilation};
    (strides_on ? reached : dilation) *= stride;
    layer.rest = dilation;
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace tern
