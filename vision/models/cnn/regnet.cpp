#include "tern/vision/models/cnn/regnet.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <torch/nn/init.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr int64_t kStemChannels = 32;

ConvLayer pointwise_to(
    int64_t in,
    int64_t out,
    LayerEnd end = LayerEnd::relu,
    int64_t stride = 1) {
  return ConvLayer(
      in,
      out,
      ConvLayerOptions{.kernel_size = 1, .stride = stride, .end = end});
}

// 1x1, grouped 3x3, squeeze-and-excitation, 1x1: `relu(f(x) + proj(x))`.
class RegNetBlockImpl : public torch::nn::Cloneable<RegNetBlockImpl> {
 public:
  RegNetBlockImpl(int64_t in, int64_t out, int64_t stride, int64_t group_width)
      : in_(in), out_(out), stride_(stride), group_width_(group_width) {
    reset();
  }

  void reset() override {
    if (stride_ != 1 || in_ != out_) {
      proj_ = register_module(
          "proj",
          pointwise_to(in_, out_, LayerEnd::linear, stride_));
    }
    Layers f;
    f->push_back("a", pointwise_to(in_, out_));
    f->push_back(
        "b",
        ConvLayer(
            out_,
            out_,
            ConvLayerOptions{
                .stride = stride_,
                .groups = out_ / group_width_}));
    f->push_back("se", SqueezeExcitation(out_, in_ / 4));
    f->push_back("c", pointwise_to(out_, out_, LayerEnd::linear));
    f_ = register_module("f", f);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = f_->forward(x);
    y += proj_ ? proj_->forward(x) : x;
    return y.relu_();
  }

 private:
  int64_t in_, out_, stride_, group_width_;
  ConvLayer proj_{nullptr};
  Layers f_{nullptr};
};
TORCH_MODULE(RegNetBlock);

}  // namespace

RegNetImpl::RegNetImpl(const RegNetShape& shape, const RegNetOptions& options)
    : shape_(shape), options_(options) {
  check_network("RegNet", options.num_classes, options.in_channels);
  check_sizes("RegNet", "blocks", shape.blocks);
  check_sizes("RegNet", "channels", shape.channels, 10'000);
  for (const int64_t channels : shape.channels) {
    TERN_CHECK_VALUE(
        shape.group_width > 0 && channels % shape.group_width == 0,
        "[RegNet] channels is {} and group_width is {}; expected channels that "
        "are a multiple of it.",
        channels,
        shape.group_width);
  }
  reset();
}

void RegNetImpl::reset() {
  stem_ = register_module(
      "stem",
      ConvLayer(
          options_.in_channels,
          kStemChannels,
          ConvLayerOptions{.stride = 2}));
  trunk_ = Layers();
  int64_t in = kStemChannels;
  for (size_t i = 0; i < shape_.blocks.size(); ++i) {
    std::string name = fmt::format("block{}", i + 1);
    const int64_t out = shape_.channels[i];
    Layers blocks;
    for (int64_t j = 0; j < shape_.blocks[i]; ++j) {
      blocks->push_back(
          fmt::format("{}-{}", name, j),
          RegNetBlock(in, out, j == 0 ? 2 : 1, shape_.group_width));
      in = out;
    }
    trunk_->push_back(std::move(name), blocks);
  }
  register_module("trunk_output", trunk_);
  for (const auto& module : modules(/*include_self=*/false)) {
    // Biases (of squeeze-and-excitation) keep PyTorch's initialization.
    if (auto* conv = module->as<torch::nn::Conv2d>()) {
      torch::nn::init::kaiming_normal_(
          conv->weight,
          0,
          torch::kFanOut,
          torch::kReLU);
    }
  }
  if (options_.num_classes > 0) {
    fc_ = register_module("fc", torch::nn::Linear(in, options_.num_classes));
    torch::nn::init::normal_(fc_->weight, 0, 0.01);
    torch::nn::init::zeros_(fc_->bias);
  }
  store_channels_last(*this);
}

std::vector<int64_t> RegNetImpl::stage_channels() const {
  std::vector<int64_t> channels = {kStemChannels};
  channels.insert(
      channels.end(),
      shape_.channels.begin(),
      shape_.channels.end());
  return channels;
}

torch::Tensor RegNetImpl::stage(size_t index, const torch::Tensor& x) {
  if (index == 0) return stem_->forward(x);
  return (trunk_->begin() + static_cast<int64_t>(index) - 1)->forward(x);
}

torch::Tensor RegNetImpl::forward(const torch::Tensor& x) {
  return fc_ ? fc_->forward(means(x)) : means(x);
}

RegNet regnet_y_400mf(const RegNetOptions& options) {
  return named<RegNet>(
      "regnet_y_400mf",
      options,
      RegNetShape{{48, 104, 208, 440}, {1, 3, 6, 6}, /*group_width=*/8});
}

RegNet regnet_y_8gf(const RegNetOptions& options) {
  return named<RegNet>(
      "regnet_y_8gf",
      options,
      RegNetShape{{224, 448, 896, 2016}, {2, 4, 10, 1}, /*group_width=*/56});
}

}  // namespace tern
