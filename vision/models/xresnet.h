#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/backbone.h"

namespace tern {

struct XResNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// Depth of an XResNet, such as that of `xresnet18`.
struct XResNetShape {
  std::array<int64_t, 4> blocks = {};  // in each of the four layers
  int64_t expansion = 1;               // 4: bottlenecks
};

struct XResBlockOptions {
  int64_t stride = 1;
  /// More than 1: a bottleneck with that many times more channels at its ends.
  int64_t expansion = 1;
  /// BatchNorm after each convolution, the last one initialised to 0.
  bool norm = true;
};

/// fastai's residual block: `relu(f(x) + shortcut(x))`, where a shortcut with a
/// stride averages before its 1x1 convolution.
class XResBlockImpl : public torch::nn::Cloneable<XResBlockImpl> {
 public:
  /// \param in, width  Channels of the input and inside; at the ends multiplied
  ///                   by the expansion.
  XResBlockImpl(int64_t in, int64_t width, XResBlockOptions options = {});
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

 private:
  int64_t in_, width_;
  XResBlockOptions options_;
  torch::nn::Sequential convpath_{nullptr}, idpath_{nullptr};
};
TORCH_MODULE(XResBlock);

/// The residual network of He et al., "Bag of Tricks for Image Classification
/// with Convolutional Neural Networks" (2018), in fastai's form: a stem of
/// three convolutions, blocks that start as the identity, averaging shortcuts.
/// Names in its state dict and its initialisation are fastai's.
class XResNetImpl : public torch::nn::Cloneable<XResNetImpl>, public Backbone {
 public:
  XResNetImpl(XResNetShape shape, XResNetOptions options);
  void reset() override;
  /// [N, in_channels, H, W] -> [N, num_classes], logits.
  torch::Tensor forward(const torch::Tensor& x);

  std::vector<int64_t> stage_channels() const override;
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;

 private:
  XResNetShape shape_;
  XResNetOptions options_;
  std::vector<ConvLayer> stem_;
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(XResNet);

/// \throws c10::ValueError unless num_classes >= 0 and in_channels > 0.
XResNet xresnet18(const XResNetOptions& options = {});
XResNet xresnet34(const XResNetOptions& options = {});
XResNet xresnet50(const XResNetOptions& options = {});

}  // namespace tern
