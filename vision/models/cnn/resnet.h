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

/// Depth and width of a ResNet or XResNet; see `resnet18`.
struct ResNetShape {
  std::vector<int64_t> blocks;  // number of blocks in each of the four layers
  bool has_bottleneck = false;  // 1x1, 3x3, 1x1 instead of two 3x3 convolutions
  /// For the 3x3 convolutions of a ResNet's bottlenecks: number of groups, and
  /// channels per group in the first layer.
  int64_t groups = 1, width_per_group = 64;

  friend bool operator==(const ResNetShape&, const ResNetShape&) = default;
};

/// Base class of ResNet and XResNet: a stem, a pooling layer, four layers of
/// residual blocks, and a classifier.
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
  int64_t expansion_;  // block output channels / block width
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear classifier_{nullptr};  // null: `forward` returns the means
};

struct ResNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Initializes the last BatchNorm of each block to 0, so that every block
  /// starts as the identity. This slightly improves training from scratch
  /// (Goyal et al., "Accurate, Large Minibatch SGD", section 5.1).
  bool zero_init_residual = false;
  /// Output stride of the features: 32, 16 or 8. With 16 and 8, the
  /// convolutions of the last layers are dilated.
  int64_t output_stride = 32;
};

/// The residual network of He et al., "Deep Residual Learning", in
/// torchvision's variant (v1.5: a bottleneck has its stride in the 3x3
/// convolution). State-dict names and the distribution of initial weights match
/// torchvision. With groups it is a ResNeXt (Xie et al., "Aggregated Residual
/// Transformations for Deep Neural Networks", 2017); with a larger width, a
/// Wide ResNet (Zagoruyko and Komodakis, 2016).
class ResNetImpl : public torch::nn::Cloneable<ResNetImpl>,
                   public ResidualNetwork {
 public:
  static constexpr const char* kSecondGroup = "layer3";
  static constexpr const char* kClassifier = "fc.";

  ResNetImpl(ResNetShape shape, ResNetOptions options);
  void reset() override;
  /// Returns "resnet18" etc., or "resnet" for a shape without a name.
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

/// Builds a "resnet" of a shape without a name; see `build_model`.
ResNet build_resnet(const Architecture& architecture);

struct XResNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// The residual network of He et al., "Bag of Tricks for Image Classification
/// with Convolutional Neural Networks" (2018), in fastai's variant: a stem of
/// three convolutions, blocks that start as the identity, and shortcuts that
/// downsample by average pooling. State-dict names and initialization match
/// fastai.
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
  /// If above 1, the block is a bottleneck: its output has `expansion` times as
  /// many channels as its middle.
  int64_t expansion = 1;
  /// BatchNorm after each convolution, the last initialized to 0.
  bool norm = true;
};

/// The block of an XResNet: `relu(f(x) + shortcut(x))`. A shortcut with a
/// stride applies average pooling before its 1x1 convolution.
class XResBlockImpl : public torch::nn::Cloneable<XResBlockImpl> {
 public:
  /// \param in, width Channels of the input and of the middle. With an
  ///                   expansion, input and output channels are `in` and
  ///                   `width` times the expansion.
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
