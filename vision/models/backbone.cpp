#include "tern/vision/models/backbone.h"

#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "tern/kernels/batch_norm_relu.h"
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
  if (options_.norm) {
    norm_ = register_module(
        "1",
        torch::nn::BatchNorm2d(torch::nn::BatchNorm2dOptions(out_)
                                   .eps(options_.eps)
                                   .momentum(options_.momentum)));
  }
}

torch::Tensor ConvLayerImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = conv_->forward(x);
  if (!norm_) return activate(std::move(y), options_.end);
  if (options_.end == LayerEnd::relu) return norm_relu(norm_, y);
  y = norm_relu(norm_, y, {}, /*relu=*/false);
  return activate(std::move(y), options_.end);
}

torch::Tensor norm_relu(
    torch::nn::BatchNorm2d& norm,
    const torch::Tensor& x,
    const torch::Tensor& other,
    bool relu) {
  if (norm->is_training() && norm->options.momentum() &&
      norm->num_batches_tracked.defined()) {
    const BatchNormTensors tensors{
        norm->weight,
        norm->bias,
        norm->running_mean,
        norm->running_var,
        *norm->options.momentum(),
        norm->options.eps()};
    if (fits_batch_norm_relu(x, other, tensors)) {
      norm->num_batches_tracked += 1;
      return batch_norm_relu(x, other, tensors, relu);
    }
  }
  torch::Tensor y = norm->forward(x);
  if (other.defined()) y += other;
  return relu ? y.relu_() : y;
}

torch::Tensor activate(torch::Tensor y, LayerEnd end) {
  // silu, hardswish and hardsigmoid need their input for backward; if they were
  // computed in place, autograd would copy it.
  const bool is_learning = torch::GradMode::is_enabled() && y.requires_grad();
  switch (end) {
    case LayerEnd::linear:
      return y;
    case LayerEnd::relu:
      return y.relu_();
    case LayerEnd::relu6:
      return torch::hardtanh_(y, 0, 6);
    case LayerEnd::silu:
      return is_learning ? torch::silu(y) : torch::silu_(y);
    case LayerEnd::hard_swish:
      return is_learning ? torch::hardswish(y) : torch::hardswish_(y);
    case LayerEnd::sigmoid:
      return y.sigmoid_();
    case LayerEnd::hard_sigmoid:
      return is_learning ? torch::hardsigmoid(y) : torch::hardsigmoid_(y);
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
  // Excludes the module itself, whose constructor may still be running.
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* conv = child->as<torch::nn::Conv2d>()) {
      init(conv->weight, conv->bias);
    } else if (auto* linear = child->as<torch::nn::Linear>()) {
      init(linear->weight, linear->bias);
    }
  }
}

void check_network(
    const char* where,
    int64_t num_classes,
    int64_t in_channels,
    double dropout,
    double stochastic_depth) {
  TERN_CHECK_VALUE(
      num_classes >= 0 && num_classes <= 1'000'000 && in_channels > 0 &&
          in_channels <= 10'000,
      "[{}] num_classes is {} and in_channels is {}; expected 0 to "
      "1,000,000 and 1 to 10,000.",
      where,
      num_classes,
      in_channels);
  TERN_CHECK_VALUE(
      dropout >= 0 && dropout < 1 && stochastic_depth >= 0 &&
          stochastic_depth < 1,
      "[{}] dropout is {} and stochastic_depth is {}; expected probabilities "
      "in [0, 1).",
      where,
      dropout,
      stochastic_depth);
}

void check_sizes(
    const char* where,
    const char* what,
    c10::ArrayRef<int64_t> sizes,
    int64_t most) {
  TERN_CHECK_VALUE(
      sizes.size() == 4 && std::ranges::min(sizes) > 0 &&
          std::ranges::max(sizes) <= most,
      "[{}] {} is {{{}}}; expected 4 numbers from 1 to {}.",
      where,
      what,
      fmt::join(sizes, ", "),
      most);
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
