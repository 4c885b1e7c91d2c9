#include "tern/vision/models/cnn/resnet.h"

#include <array>
#include <string>
#include <utility>

#include <fmt/ranges.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/pooling.h>

#include "tern/data/formats/json.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr int64_t kWidth = 64;  // of the stem and the first layer

// Options of a shape without a name.
JsonFields fields_of(ResNetShape& shape, ResNetOptions& options) {
  JsonFields fields = fields_of(options);
  fields.emplace_back("blocks", &shape.blocks);
  fields.emplace_back("has_bottleneck", &shape.has_bottleneck);
  fields.emplace_back("groups", &shape.groups);
  fields.emplace_back("width_per_group", &shape.width_per_group);
  return fields;
}

// Without a bias, because a normalization layer follows.
torch::nn::Conv2d conv(
    int64_t in,
    int64_t out,
    int64_t kernel_size,
    int64_t stride,
    int64_t dilation = 1,
    int64_t groups = 1) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel_size)
                               .stride(stride)
                               .padding(dilation * (kernel_size / 2))
                               .dilation(dilation)
                               .groups(groups)
                               .bias(false));
}

struct BlockOptions {
  int64_t stride = 1, dilation = 1;
  int64_t groups = 1, inner = 0;  // groups and channels of a bottleneck's 3x3
  bool has_bottleneck = false, zero_init = false;
};

// torchvision's residual block: `relu(f(x) + downsample(x))`.
class ResidualBlockImpl : public torch::nn::Cloneable<ResidualBlockImpl> {
 public:
  ResidualBlockImpl(int64_t in, int64_t width, BlockOptions options)
      : in_(in), width_(width), options_(options) {
    reset();
  }

  void reset() override {
    const auto& [stride, dilation, groups, inner, has_bottleneck, zero_init] =
        options_;
    const int64_t out = has_bottleneck ? 4 * width_ : width_;
    const int64_t middle = has_bottleneck ? inner : width_;
    conv1_ = register_module(
        "conv1",
        has_bottleneck ? conv(in_, middle, 1, 1)
                       : conv(in_, middle, 3, stride, dilation));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(middle));
    const int64_t stride2 = has_bottleneck ? stride : 1;
    conv2_ = register_module(
        "conv2",
        conv(middle, middle, 3, stride2, dilation, groups));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(middle));
    if (has_bottleneck) {
      conv3_ = register_module("conv3", conv(middle, out, 1, 1));
      bn3_ = register_module("bn3", torch::nn::BatchNorm2d(out));
    }
    if (zero_init) {
      torch::nn::init::zeros_((has_bottleneck ? bn3_ : bn2_)->weight);
    }
    if (stride != 1 || in_ != out) {
      downsample_ = register_module(
          "downsample",
          torch::nn::Sequential(
              conv(in_, out, 1, stride),
              torch::nn::BatchNorm2d(out)));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = norm_relu(bn1_, conv1_->forward(x));
    const torch::Tensor before =
        conv3_ ? norm_relu(bn2_, conv2_->forward(y)) : y;
    torch::nn::Conv2d& last_conv = conv3_ ? conv3_ : conv2_;
    torch::nn::BatchNorm2d& last_norm = conv3_ ? bn3_ : bn2_;
    const torch::Tensor last = last_conv->forward(before);
    return norm_relu(
        last_norm,
        last,
        downsample_ ? downsample_->forward(x) : x);
  }

 private:
  int64_t in_, width_;
  BlockOptions options_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(ResidualBlock);

}  // namespace

ResidualNetwork::ResidualNetwork(const char* name, ResNetShape shape)
    : shape_(std::move(shape)), expansion_(shape_.has_bottleneck ? 4 : 1) {
  check_sizes(name, "blocks", shape_.blocks);
}

torch::Tensor ResidualNetwork::forward(const torch::Tensor& x) {
  return classifier_ ? classifier_->forward(means(x)) : means(x);
}

std::vector<int64_t> ResidualNetwork::stage_channels() const {
  std::vector<int64_t> channels = {kWidth};
  for (int i = 0; i < 4; ++i) channels.push_back((kWidth << i) * expansion_);
  return channels;
}

torch::Tensor ResidualNetwork::stage(size_t index, const torch::Tensor& x) {
  if (index == 0) return stem(x);
  return layers_[index - 1]->forward(
      index == 1 ? torch::max_pool2d(x, 3, 2, 1) : x);
}

ResNetImpl::ResNetImpl(ResNetShape shape, ResNetOptions options)
    : ResidualNetwork("ResNet", std::move(shape)), options_(options) {
  check_network("ResNet", options.num_classes, options.in_channels);
  const auto& [blocks, has_bottleneck, groups, width] = shape_;
  TERN_CHECK_VALUE(
      has_bottleneck
          ? groups > 0 && groups <= 1024 && width > 0 && width <= 1024
          : groups == 1 && width == kWidth,
      "[ResNet] groups is {} and width_per_group is {}; expected numbers from "
      "1 to 1024, and 1 and 64 without bottlenecks.",
      groups,
      width);
  reset();
}

void ResNetImpl::reset() {
  conv1_ = register_module("conv1", conv(options_.in_channels, kWidth, 7, 2));
  bn1_ = register_module("bn1", torch::nn::BatchNorm2d(kWidth));
  int64_t channels = kWidth;
  const auto dilations =
      dilate_layers(options_.output_stride, /*stem_stride=*/4, {1, 2, 2, 2});
  layers_.clear();
  for (size_t i = 0; i < 4; ++i) {
    const auto [stride, first, rest] = dilations[i];
    torch::nn::Sequential layer;
    for (int64_t block = 0; block < shape_.blocks[i]; ++block) {
      const bool is_first = block == 0;
      layer->push_back(ResidualBlock(
          channels,
          kWidth << i,
          BlockOptions{
              .stride = is_first ? stride : 1,
              .dilation = is_first ? first : rest,
              .groups = shape_.groups,
              .inner = ((shape_.width_per_group * shape_.groups) << i),
              .has_bottleneck = shape_.has_bottleneck,
              .zero_init = options_.zero_init_residual}));
      channels = (kWidth << i) * expansion_;
    }
    layers_.push_back(register_module(fmt::format("layer{}", i + 1), layer));
  }
  init_kaiming(*this, /*by_fan_out=*/true);
  store_channels_last(*this);
  if (options_.num_classes > 0) {
    classifier_ = register_module(
        "fc",
        torch::nn::Linear(channels, options_.num_classes));
  }
}

torch::Tensor ResNetImpl::stem(const torch::Tensor& x) {
  return norm_relu(bn1_, conv1_->forward(x));
}

Architecture ResNetImpl::architecture() const {
  Architecture known = Backbone::architecture();
  if (!known.name.empty()) return known;
  ResNetOptions options = options_;
  ResNetShape shape = shape_;
  return {"resnet", to_json(fields_of(shape, options))};
}

ResNet build_resnet(const Architecture& architecture) {
  ResNetOptions options;
  ResNetShape shape;
  read_json(
      architecture.options,
      fields_of(shape, options),
      "the options of " + architecture.name);
  return ResNet(shape, options);
}

ResNet resnet18(const ResNetOptions& options) {
  return named<ResNet>("resnet18", options, ResNetShape{{2, 2, 2, 2}});
}

ResNet resnet34(const ResNetOptions& options) {
  return named<ResNet>("resnet34", options, ResNetShape{{3, 4, 6, 3}});
}

ResNet resnet50(const ResNetOptions& options) {
  return named<ResNet>("resnet50", options, ResNetShape{{3, 4, 6, 3}, true});
}

ResNet resnet101(const ResNetOptions& options) {
  return named<ResNet>("resnet101", options, ResNetShape{{3, 4, 23, 3}, true});
}

ResNet resnet152(const ResNetOptions& options) {
  return named<ResNet>("resnet152", options, ResNetShape{{3, 8, 36, 3}, true});
}

ResNet resnext50_32x4d(const ResNetOptions& options) {
  return named<ResNet>(
      "resnext50_32x4d",
      options,
      ResNetShape{{3, 4, 6, 3}, true, 32, 4});
}

ResNet wide_resnet50_2(const ResNetOptions& options) {
  return named<ResNet>(
      "wide_resnet50_2",
      options,
      ResNetShape{{3, 4, 6, 3}, true, 1, 128});
}

XResNetImpl::XResNetImpl(ResNetShape shape, XResNetOptions options)
    : ResidualNetwork("XResNet", std::move(shape)), options_(options) {
  check_network("XResNet", options.num_classes, options.in_channels);
  reset();
}

void XResNetImpl::reset() {
  stem_.clear();
  layers_.clear();
  const std::array<int64_t, 4> stem = {options_.in_channels, 32, 32, kWidth};
  for (size_t i = 0; i < 3; ++i) {
    stem_.push_back(register_module(
        std::to_string(i),
        ConvLayer(
            stem[i],
            stem[i + 1],
            ConvLayerOptions{.stride = i == 0 ? 2 : 1})));
  }
  int64_t channels = kWidth / expansion_;
  for (size_t i = 0; i < 4; ++i) {
    torch::nn::Sequential layer;
    for (int64_t block = 0; block < shape_.blocks[i]; ++block) {
      layer->push_back(XResBlock(
          channels,
          kWidth << i,
          XResBlockOptions{
              .stride = block == 0 && i > 0 ? 2 : 1,
              .expansion = expansion_}));
      channels = kWidth << i;
    }
    // fastai's names; "3" is the pooling after the stem.
    layers_.push_back(register_module(std::to_string(4 + i), layer));
  }
  if (options_.num_classes > 0) {
    classifier_ = register_module(
        "11",
        torch::nn::Linear(channels * expansion_, options_.num_classes));
  }
  init_kaiming(*this);
  store_channels_last(*this);
}

torch::Tensor XResNetImpl::stem(const torch::Tensor& x) {
  return stem_[2]->forward(stem_[1]->forward(stem_[0]->forward(x)));
}

XResNet xresnet18(const XResNetOptions& options) {
  return named<XResNet>("xresnet18", options, ResNetShape{{2, 2, 2, 2}});
}

XResNet xresnet34(const XResNetOptions& options) {
  return named<XResNet>("xresnet34", options, ResNetShape{{3, 4, 6, 3}});
}

XResNet xresnet50(const XResNetOptions& options) {
  return named<XResNet>("xresnet50", options, ResNetShape{{3, 4, 6, 3}, true});
}

XResBlockImpl::XResBlockImpl(
    int64_t in,
    int64_t width,
    XResBlockOptions options)
    : in_(in), width_(width), options_(options) {
  reset();
}

void XResBlockImpl::reset() {
  const auto [stride, expansion, norm] = options_;
  const int64_t in = in_ * expansion, out = width_ * expansion;
  torch::nn::Sequential convpath, idpath;
  const auto layer = [norm = norm](
                         int64_t from,
                         int64_t to,
                         int64_t kernel_size,
                         int64_t step,
                         LayerEnd end) {
    return ConvLayer(
        from,
        to,
        ConvLayerOptions{
            .kernel_size = kernel_size,
            .stride = step,
            .norm = norm,
            .end = end});
  };
  if (expansion == 1) {
    convpath->push_back(layer(in, width_, 3, stride, LayerEnd::relu));
  } else {
    convpath->push_back(layer(in, width_, 1, 1, LayerEnd::relu));
    convpath->push_back(layer(width_, width_, 3, stride, LayerEnd::relu));
  }
  ConvLayer last =
      layer(width_, out, expansion == 1 ? 3 : 1, 1, LayerEnd::linear);
  if (norm) torch::nn::init::zeros_(last->norm()->weight);
  convpath->push_back(last);
  if (stride != 1) {
    idpath->push_back(torch::nn::AvgPool2d(
        torch::nn::AvgPool2dOptions(stride).ceil_mode(true)));
  }
  if (in != out) idpath->push_back(layer(in, out, 1, 1, LayerEnd::linear));
  convpath_ = register_module("convpath", convpath);
  idpath_ = register_module("idpath", idpath);
}

torch::Tensor XResBlockImpl::forward(const torch::Tensor& x) {
  torch::Tensor y = convpath_->forward(x);
  y += idpath_->is_empty() ? x : idpath_->forward(x);
  return y.relu_();
}

}  // namespace tern
