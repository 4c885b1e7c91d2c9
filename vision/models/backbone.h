#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/data/formats/json.h"
#include "tern/learner/export/architecture.h"

namespace tern {

/// Activation of a ConvLayer.
enum class LayerEnd {
  linear,
  relu,
  relu6,
  silu,
  hard_swish,
  sigmoid,
  hard_sigmoid
};

/// Applies the activation. May overwrite `y`, so pass only a tensor that the
/// caller owns, such as a layer's own output.
torch::Tensor activate(torch::Tensor y, LayerEnd end);

struct ConvLayerOptions {
  int64_t kernel_size = 3;  // padded to keep H and W if odd
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t groups = 1;
  /// BatchNorm after the convolution; without it the convolution has a bias.
  bool norm = true;
  LayerEnd end = LayerEnd::relu;
  double eps = 1e-5, momentum = 0.1;  // of the BatchNorm
};

/// Convolution, BatchNorm and activation. Convolution and BatchNorm are
/// registered as "0" and "1", their names in torchvision's Conv2dNormActivation
/// and fastai's ConvLayer.
class ConvLayerImpl : public torch::nn::Cloneable<ConvLayerImpl> {
 public:
  ConvLayerImpl(int64_t in, int64_t out, ConvLayerOptions options = {});
  void reset() override;
  /// [N, in, H, W] -> [N, out, H / stride, W / stride], rounded up.
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::Conv2d conv() const { return conv_; }
  torch::nn::BatchNorm2d norm() const { return norm_; }

 private:
  int64_t in_, out_;
  ConvLayerOptions options_;
  torch::nn::Conv2d conv_{nullptr};
  torch::nn::BatchNorm2d norm_{nullptr};
};
TORCH_MODULE(ConvLayer);

/// Returns `relu(norm(x) + other)`, or without the ReLU if `relu` is false. In
/// training on a CPU a single fused operation computes it where possible.
/// \param other  Same size as `x`, or undefined to add nothing.
torch::Tensor norm_relu(
    torch::nn::BatchNorm2d& norm,
    const torch::Tensor& x,
    const torch::Tensor& other = {},
    bool relu = true);

/// Stores the weights of all convolutions channels-last, like the images from
/// the data loader.
void store_channels_last(torch::nn::Module& module);

/// Initializes all convolutions and linear layers of a module: weights as in He
/// et al. (normal with variance 2 / fan_in, or 2 / fan_out), biases to 0.
/// Leaves normalization layers unchanged.
void init_kaiming(torch::nn::Module& module, bool by_fan_out = false);

/// Stride and dilations of the convolutions in one layer of residual blocks
/// (for example a ResNet's layer3).
struct LayerDilation {
  /// Stride of the first block.
  int64_t stride = 1;
  /// Dilation of the first block, and of the remaining blocks.
  int64_t first = 1, rest = 1;
};

/// Limits the output stride of a network. Once the features are `output_stride`
/// times smaller than the image, later layers have stride 1 and dilated
/// convolutions instead, which keeps the receptive field (Chen et al.,
/// "Rethinking Atrous Convolution for Semantic Image Segmentation", 2017). Like
/// torchvision's `replace_stride_with_dilation`.
/// \param stem_stride  Stride of the network before its first layer of blocks.
/// \param strides      Stride of each layer in the undilated network.
/// \throws c10::ValueError unless output_stride is 8, 16 or 32.
std::vector<LayerDilation> dilate_layers(
    int64_t output_stride,
    int64_t stem_stride,
    const std::vector<int64_t>& strides);

/// Checks the options that all networks share. The upper bounds protect against
/// values from a malformed file.
/// \throws c10::ValueError unless num_classes is 0 to 1,000,000, in_channels is
///         1 to 10,000, and all others are in [0, 1). The message begins with
///         `where`.
void check_network(
    const char* where,
    int64_t num_classes,
    int64_t in_channels,
    double dropout = 0,
    double stochastic_depth = 0);
/// Checks the four sizes of a network's shape, which the error message calls
/// `what`.
/// \throws c10::ValueError unless `sizes` are four numbers from 1 to `most`.
void check_sizes(
    const char* where,
    const char* what,
    c10::ArrayRef<int64_t> sizes,
    int64_t most = 1000);

/// An image network without its classifier, divided into stages. Each stage
/// halves height and width, except the last stages of a dilated network (see
/// `dilate_layers`) and the first stage of a ConvNeXt or Swin, which divides
/// them by four.
class Backbone : public HasArchitecture {
 public:
  /// Returns the number of channels after each stage.
  virtual std::vector<int64_t> stage_channels() const = 0;
  /// Computes stage `index` from the output of the previous stage, or stage 0
  /// from the images [N, in_channels, H, W]. Returns [N, C, H / s, W / s],
  /// where s is 2^(index + 1), or 2^(index + 2) for ConvNeXt and Swin. Sizes
  /// are rounded up, but rounded down in DenseNet, ConvNeXt and Swin's first
  /// stage. In a dilated network s is at most the output stride.
  virtual torch::Tensor stage(size_t index, const torch::Tensor& x) = 0;

  /// True if the stages return feature maps. False for a ViT, whose only stage
  /// returns one vector per image, [N, C].
  virtual bool has_maps() const { return true; }

  /// Name and options of a network that `named` created; the name is empty for
  /// any other network.
  Architecture architecture() const override { return architecture_; }
  void set_architecture(Architecture architecture) {
    architecture_ = std::move(architecture);
  }

  /// Returns the output of the last stage.
  torch::Tensor features(torch::Tensor x) {
    const size_t count = stage_channels().size();
    for (size_t i = 0; i < count; ++i) x = stage(i, x);
    return x;
  }
  /// Returns the features averaged over height and width, [N, C].
  torch::Tensor means(const torch::Tensor& x) {
    if (!has_maps()) return features(x);
    return torch::adaptive_avg_pool2d(features(x), {1, 1}).flatten(1);
  }
  /// Returns the output of every stage, from high to low resolution.
  Tensors stages(torch::Tensor x) {
    Tensors all;
    const size_t count = stage_channels().size();
    for (size_t i = 0; i < count; ++i) all.push_back(x = stage(i, x));
    return all;
  }

 private:
  Architecture architecture_;
};

/// Lists a network's options under their JSON names, for its Architecture.
template <class Options>
  requires requires(Options& o) { o.num_classes, o.in_channels; }
JsonFields fields_of(Options& options) {
  JsonFields fields = {
      {"num_classes", &options.num_classes},
      {"in_channels", &options.in_channels}};
#define TERN_FIELD(name)                    \
  if constexpr (requires { options.name; }) \
  fields.emplace_back(#name, &options.name)
  TERN_FIELD(image_size);
  TERN_FIELD(dropout);
  TERN_FIELD(attention_dropout);
  TERN_FIELD(stochastic_depth);
  TERN_FIELD(zero_init_residual);
  TERN_FIELD(output_stride);
  TERN_FIELD(last_convolution);
#undef TERN_FIELD
  return fields;
}

/// Creates a network and records its name (as in `VisionArch`) and options, so
/// that `build_model` can rebuild it.
template <class Net, class Options, class... Shape>
Net named(const char* name, Options options, const Shape&... shape) {
  Net net(shape..., options);
  net->set_architecture({name, to_json(fields_of(options))});
  return net;
}

}  // namespace tern
