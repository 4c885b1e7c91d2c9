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

#include "tern/learner/weights/architecture.h"
#include "tern/vision/models/backbone.h"

namespace tern {

struct ResNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Initialises the last norm of each block to 0, so that the block starts as
  /// the identity: trains slightly better from scratch (Goyal et al.,
  /// "Accurate, Large Minibatch SGD", section 5.1).
  bool zero_init_residual = false;
  /// Stride of the features: 32, or 16 or 8 with dilated convolutions in the
  /// last layers.
  int64_t output_stride = 32;
};

/// Depth of a ResNet, such as that of `resnet18`.
struct ResNetShape {
  std::vector<int64_t> blocks;  // in each of the four layers
  bool has_bottleneck = false;  // 1x1, 3x3, 1x1 instead of two 3x3

  friend bool operator==(const ResNetShape&, const ResNetShape&) = default;
};

/// One residual block: `relu(f(x) + downsample(x))`. A member of ResNet.
class ResidualBlockImpl : public torch::nn::Cloneable<ResidualBlockImpl> {
 public:
  ResidualBlockImpl(
      int64_t in,
      int64_t width,
      int64_t stride,
      bool has_bottleneck,
      int64_t dilation = 1);
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);
  /// The last norm of f.
  torch::nn::BatchNorm2d last_norm() { return has_bottleneck_ ? bn3_ : bn2_; }
  int64_t out_channels() const { return has_bottleneck_ ? 4 * width_ : width_; }

 private:
  int64_t in_, width_, stride_;
  bool has_bottleneck_;
  int64_t dilation_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(ResidualBlock);

/// The residual network of He et al., "Deep Residual Learning", in
/// torchvision's form (v1.5: a bottleneck strides in its 3x3 convolution), with
/// torchvision's names in its state dict and its initial weights' distribution.
class ResNetImpl : public torch::nn::Cloneable<ResNetImpl>,
                   public Backbone,
                   public HasArchitecture {
 public:
  ResNetImpl(ResNetShape shape, ResNetOptions options);
  void reset() override;
  /// [N, in_channels, H, W] -> [N, num_classes], logits.
  torch::Tensor forward(const torch::Tensor& x);

  std::vector<int64_t> stage_channels() const override;
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;
  /// "resnet18" etc., or "resnet" for another shape.
  Architecture architecture() const override;

 private:
  torch::nn::Sequential make_layer(
      int64_t& channels,
      int64_t width,
      int64_t blocks,
      const LayerDilation& dilation);
  void init_weights();

  ResNetShape shape_;
  ResNetOptions options_;
  torch::nn::Conv2d conv1_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr};
  std::vector<torch::nn::Sequential> layers_;
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(ResNet);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0 and
///         output_stride is 8, 16 or 32.
ResNet resnet18(const ResNetOptions& options = {});
ResNet resnet34(const ResNetOptions& options = {});
ResNet resnet50(const ResNetOptions& options = {});
ResNet resnet101(const ResNetOptions& options = {});

/// Builds the network that ResNetImpl::architecture describes; see
/// `build_model`.
/// \throws DataError if its options are not those of a ResNet.
ResNet build_resnet(const Architecture& architecture);

}  // namespace tern
