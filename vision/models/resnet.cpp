#include "tern/vision/models/resnet.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/init.h>

#include "tern/data/formats/json_fields.h"
#include "tern/vision/models/backbone.h"

namespace tern {

namespace {

const std::array<std::pair<const char*, ResNetShape>, 4> kShapes = {{
    {"resnet18", {{2, 2, 2, 2}, false}},
    {"resnet34", {{3, 4, 6, 3}, false}},
    {"resnet50", {{3, 4, 6, 3}, true}},
    {"resnet101", {{3, 4, 23, 3}, true}},
}};

JsonFields fields_of(ResNetOptions& options) {
  return {
      {"num_classes", &options.num_classes},
      {"in_channels", &options.in_channels},
      {"zero_init_residual", &options.zero_init_residual},
      {"output_stride", &options.output_stride}};
}

// Those of a shape that has no name.
JsonFields fields_of(ResNetShape& shape, ResNetOptions& options) {
  JsonFields fields = fields_of(options);
  fields.emplace_back("blocks", &shape.blocks);
  fields.emplace_back("has_bottleneck", &shape.has_bottleneck);
  return fields;
}

// Without a bias: the norm that follows has one.
torch::nn::Conv2d conv(
    int64_t in,
    int64_t out,
    int64_t kernel_size,
    int64_t stride,
    int64_t dilation = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel_size)
                               .stride(stride)
                               .padding(dilation * (kernel_size / 2))
                               .dilation(dilation)
                               .bias(false));
}

}  // namespace

ResidualBlockImpl::ResidualBlockImpl(
    int64_t in,
    int64_t width,
    int64_t stride,
    bool has_bottleneck,
    int64_t dilation)
    : in_(in),
      width_(width),
      stride_(stride),
      has_bottleneck_(has_bottleneck),
      dilation_(dilation) {
  reset();
}

void ResidualBlockImpl::reset() {
  const int64_t out = out_channels();
  conv1_ = register_module(
      "conv1",
      has_bottleneck_ ? conv(in_, width_, 1, 1)
                      : conv(in_, width_, 3, stride_, dilation_));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(width_));
  conv2_ = register_module(
      "conv2",
      conv(width_, width_, 3, has_bottleneck_ ? stride_ : 1, dilation_));
  bn2_ = register_module("bn2", torch::nn::BatchNorm2d(width_));
  if (has_bottleneck_) {
    conv3_ = register_module("conv3", conv(width_, out, 1, 1));
    bn3_ = register_module("bn3", torch::nn::BatchNorm2d(out));
  }
  if (stride_ != 1 || in_ != out) {
    downsample_ = register_module(
        "downsample",
        torch::nn::Sequential(
            conv(in_, out, 1, stride_),
            torch::nn::BatchNorm2d(out)));
  }
}

torch::Tensor ResidualBlockImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = bn1_->forward(conv1_->forward(x)).relu_();
  y = bn2_->forward(conv2_->forward(y));
  if (has_bottleneck_) y = bn3_->forward(conv3_->forward(y.relu_()));
  y += downsample_ ? downsample_->forward(x) : x;
  return y.relu_();
}

ResNetImpl::ResNetImpl(ResNetShape shape, ResNetOptions options)
    : shape_(std::move(shape)), options_(options) {
  TORCH_CHECK_VALUE(
      options.num_classes >= 0 && options.in_channels > 0,
      fmt::format(
          "[ResNet] num_classes is {} and in_channels is {}; expected at "
          "least 0 and at least 1.",
          options.num_classes,
          options.in_channels));
  const std::vector<int64_t>& blocks = shape_.blocks;
  TORCH_CHECK_VALUE(
      blocks.size() == 4 && *std::min_element(blocks.begin(), blocks.end()) > 0,
      fmt::format(
          "[ResNet] blocks is {{{}}}; expected 4 positive numbers.",
          fmt::join(blocks, ", ")));
  reset();
}

void ResNetImpl::reset() {
  conv1_ = register_module("conv1", conv(options_.in_channels, 64, 7, 2));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(64));
  int64_t channels = 64;
  const std::vector<int64_t>& blocks = shape_.blocks;
  DilationPlan plan(options_.output_stride, /*stem_stride=*/4);
  layers_.clear();
  for (size_t i = 0; i < blocks.size(); ++i) {
    layers_.push_back(register_module(
        fmt::format("layer{}", i + 1),
        make_layer(
            channels,
            int64_t{64} << i,
            blocks[i],
            plan.next(i == 0 ? 1 : 2))));
  }
  init_weights();
  if (options_.num_classes > 0) {
    fc_ = register_module(
        "fc",
        torch::nn::Linear(channels, options_.num_classes));
  }
}

torch::nn::Sequential ResNetImpl::make_layer(
    int64_t& channels,
    int64_t width,
    int64_t blocks,
    const LayerDilation& dilation) {
  torch::nn::Sequential layer;
  for (int64_t i = 0; i < blocks; ++i) {
    ResidualBlock block(
        channels,
        width,
        i == 0 ? dilation.stride : 1,
        shape_.has_bottleneck,
        i == 0 ? dilation.first : dilation.rest);
    channels = block->out_channels();
    layer->push_back(block);
  }
  return layer;
}

void ResNetImpl::init_weights() {
  init_kaiming(*this, /*by_fan_out=*/true);
  store_channels_last(*this);
  if (!options_.zero_init_residual) return;
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* block = module->as<ResidualBlock>()) {
      torch::nn::init::zeros_(block->last_norm()->weight);
    }
  }
}

std::vector<int64_t> ResNetImpl::stage_channels() const {
  const int64_t e = shape_.has_bottleneck ? 4 : 1;
  return {64, 64 * e, 128 * e, 256 * e, 512 * e};
}

torch::Tensor ResNetImpl::stage(size_t index, const torch::Tensor& x) {
  if (index == 0) return bn1_->forward(conv1_->forward(x)).relu_();
  return layers_[index - 1]->forward(
      index == 1 ? torch::max_pool2d(x, 3, 2, 1) : x);
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& x) {
  return fc_ ? fc_->forward(means(x)) : means(x);
}

Architecture ResNetImpl::architecture() const {
  ResNetOptions options = options_;
  for (const auto& [name, shape] : kShapes) {
    if (shape == shape_) return {name, to_json(fields_of(options))};
  }
  ResNetShape shape = shape_;
  return {"resnet", to_json(fields_of(shape, options))};
}

ResNet build_resnet(const Architecture& architecture) {
  const auto& [name, json] = architecture;
  const std::string where = "the options of " + name;
  ResNetOptions options;
  for (const auto& [known, shape] : kShapes) {
    if (known != name) continue;
    read_json(json, fields_of(options), where);
    return ResNet(shape, options);
  }
  ResNetShape shape;
  read_json(json, fields_of(shape, options), where);
  return ResNet(shape, options);
}

ResNet resnet18(const ResNetOptions& options) {
  return ResNet(kShapes[0].second, options);
}

ResNet resnet34(const ResNetOptions& options) {
  return ResNet(kShapes[1].second, options);
}

ResNet resnet50(const ResNetOptions& options) {
  return ResNet(kShapes[2].second, options);
}

ResNet resnet101(const ResNetOptions& options) {
  return ResNet(kShapes[3].second, options);
}

}  // namespace tern
