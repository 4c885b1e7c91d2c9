#include "tern/vision/models/xresnet.h"

#include <string>

#include <fmt/format.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/pooling.h>

namespace tern {

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

XResNetImpl::XResNetImpl(XResNetShape shape, XResNetOptions options)
    : shape_(shape), options_(options) {
  TORCH_CHECK_VALUE(
      options.num_classes >= 0 && options.in_channels > 0,
      fmt::format(
          "[XResNet] num_classes is {} and in_channels is {}; expected at "
          "least 0 and at least 1.",
          options.num_classes,
          options.in_channels));
  reset();
}

void XResNetImpl::reset() {
  stem_.clear();
  layers_.clear();
  const std::array<int64_t, 4> stem = {options_.in_channels, 32, 32, 64};
  for (size_t i = 0; i < 3; ++i) {
    stem_.push_back(register_module(
        std::to_string(i),
        ConvLayer(
            stem[i],
            stem[i + 1],
            ConvLayerOptions{.stride = i == 0 ? 2 : 1})));
  }
  const std::array<int64_t, 5> widths =
      {64 / shape_.expansion, 64, 128, 256, 512};
  for (size_t i = 0; i < 4; ++i) {
    torch::nn::Sequential layer;
    for (int64_t block = 0; block < shape_.blocks[i]; ++block) {
      const bool is_first = block == 0;
      layer->push_back(XResBlock(
          is_first ? widths[i] : widths[i + 1],
          widths[i + 1],
          XResBlockOptions{
              .stride = is_first && i > 0 ? 2 : 1,
              .expansion = shape_.expansion}));
    }
    // fastai's numbers; 3 is the pooling behind the stem.
    layers_.push_back(register_module(std::to_string(4 + i), layer));
  }
  if (options_.num_classes > 0) {
    classifier_ = register_module(
        "11",
        torch::nn::Linear(512 * shape_.expansion, options_.num_classes));
  }
  init_kaiming(*this);
  store_channels_last(*this);
}

std::vector<int64_t> XResNetImpl::stage_channels() const {
  const int64_t e = shape_.expansion;
  return {64, 64 * e, 128 * e, 256 * e, 512 * e};
}

torch::Tensor XResNetImpl::stage(size_t index, const torch::Tensor& x) {
  if (index == 0) {
    return stem_[2]->forward(stem_[1]->forward(stem_[0]->forward(x)));
  }
  return layers_[index - 1]->forward(
      index == 1 ? torch::max_pool2d(x, 3, 2, 1) : x);
}

torch::Tensor XResNetImpl::forward(const torch::Tensor& x) {
  return classifier_ ? classifier_->forward(means(x)) : means(x);
}

XResNet xresnet18(const XResNetOptions& options) {
  return XResNet(XResNetShape{{2, 2, 2, 2}, 1}, options);
}

XResNet xresnet34(const XResNetOptions& options) {
  return XResNet(XResNetShape{{3, 4, 6, 3}, 1}, options);
}

XResNet xresnet50(const XResNetOptions& options) {
  return XResNet(XResNetShape{{3, 4, 6, 3}, 4}, options);
}

}  // namespace tern
