#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/export/architecture.h"
#include "tern/vision/models/backbone.h"

namespace tern {

/// Depth of a ResNet or an XResNet, such as that of `resnet18`.
struct ResNetShape {
  std::vector<int64_t> blocks;  // in each of the four layers
  bool has_bottleneck = false;  // 1x1, 3x3, 1x1 instead of two 3x3
  /// Of the 3x3 convolutions of a ResNet's bottlenecks: groups, and the width
  /// of each in the first layer.
  int64_t groups = 1, width_per_group = 64;

  friend bool operator==(const ResNetShape&, const ResNetShape&) = default;
};

/// What ResNet and XResNet share: a stem, four layers of residual blocks, with
/// a pooling before the first, and a classifier.
class ResidualNetwork : public Backbone {
 public:
  /// [N, in_channels, H, W] -> [N, num_classes], logits.
  torch::Tensor forward(const torch::Tensor& x);

  std::vector<int64_t> stage_channels() const override;
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;

 protected:
  ResidualNetwork(const char* name, ResNetShape shape);
  virtual torch::Tensor stem(const torch::Tensor& x) = 0;

  ResNetShape shape_;
  int64_t expansion_;  // of the channels at the ends of a block
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear classifier_{nullptr};  // null: returns means
};

struct ResNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Initializes the last norm of each block to 0, so that the block starts as
  /// the identity: trains slightly better from scratch (Goyal et al.,
  /// "Accurate, Large Minibatch SGD", section 5.1).
  bool zero_init_residual = false;
  /// Stride of the features: 32, or 16 or 8 with dilated convolutions in the
  /// last layers.
  int64_t output_stride = 32;
};

/// The residual network of He et al., "Deep Residual Learning", in
/// torchvision's form (v1.5: a bottleneck strides in its 3x3 convolution), with
/// torchvision's names in its state dict and its initial weights' distribution.
/// With groups it is a ResNeXt (Xie et al., "Aggregated Residual
/// Transformations for Deep Neural Networks", 2017), with a larger width a Wide
/// ResNet (Zagoruyko and Komodakis, 2016).
class ResNetImpl : public torch::nn::Cloneable<ResNetImpl>,
                   public ResidualNetwork {
 public:
  static constexpr const char* kSecondGroup = "layer3";
  static constexpr const char* kClassifier = "fc.";

  ResNetImpl(ResNetShape shape, ResNetOptions options);
  void reset() override;
  /// "resnet18" etc., or "resnet" for another shape.
  Architecture architecture() const override;

 private:
  torch::Tensor stem(const torch::Tensor& x) override;

  ResNetOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
};
TORCH_MODULE(ResNet);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0 and
///         output_stride is 8, 16 or 32.
ResNet resnet18(const ResNetOptions& options = {});
ResNet resnet34(const ResNetOptions& options = {});
ResNet resnet50(const ResNetOptions& options = {});
ResNet resnet101(const ResNetOptions& options = {});
ResNet resnet152(const ResNetOptions& options = {});
ResNet resnext50_32x4d(const ResNetOptions& options = {});
ResNet wide_resnet50_2(const ResNetOptions& options = {});

/// Builds a "resnet", of a shape without a name; see `build_model`.
ResNet build_resnet(const Architecture& architecture);

struct XResNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// The residual network of He et al., "Bag of Tricks for Image Classification
/// with Convolutional Neural Networks" (2018), in fastai's form: a stem of
/// three convolutions, blocks that start as the identity, averaging shortcuts.
/// Names in its state dict and its initialization are fastai's.
class XResNetImpl : public torch::nn::Cloneable<XResNetImpl>,
                    public ResidualNetwork {
 public:
  static constexpr const char* kSecondGroup = "4";
  static constexpr const char* kClassifier = "11.";

  XResNetImpl(ResNetShape shape, XResNetOptions options);
  void reset() override;

 private:
  torch::Tensor stem(const torch::Tensor& x) override;

  XResNetOptions options_;
  std::vector<ConvLayer> stem_;
};
TORCH_MODULE(XResNet);

/// \throws c10::ValueError unless num_classes >= 0 and in_channels > 0.
XResNet xresnet18(const XResNetOptions& options = {});
XResNet xresnet34(const XResNetOptions& options = {});
XResNet xresnet50(const XResNetOptions& options = {});

struct XResBlockOptions {
  int64_t stride = 1;
  /// More than 1: a bottleneck with that many times more channels at its ends.
  int64_t expansion = 1;
  /// BatchNorm after each convolution, the last one initialized to 0.
  bool norm = true;
};

/// The block of an XResNet: `relu(f(x) + shortcut(x))`, where a shortcut with a
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

}  // namespace tern
