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

/// Applies the activation. May change `y`, as a layer's own result.
torch::Tensor activate(torch::Tensor y, LayerEnd end);

struct ConvLayerOptions {
  int64_t kernel_size = 3;  // padded by half its span
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t groups = 1;
  /// BatchNorm after the convolution; without it the convolution has a bias.
  bool norm = true;
  LayerEnd end = LayerEnd::relu;
  double eps = 1e-5, momentum = 0.1;  // of the norm
};

/// Convolution, BatchNorm, activation, under the names "0" and "1" that they
/// have in torchvision's Conv2dNormActivation and fastai's ConvLayer.
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

/// `relu(norm(x) + other)`, in training on a CPU in one operation where that is
/// possible.
/// \param other  Of the same size; undefined: nothing is added.
torch::Tensor norm_relu(
    torch::nn::BatchNorm2d& norm,
    const torch::Tensor& x,
    const torch::Tensor& other = {},
    bool relu = true);

/// Stores the weights of all convolutions channels-last, the layout of the
/// loader's images.
void store_channels_last(torch::nn::Module& module);

/// Initializes all convolutions and linear layers of a module as He et al.
/// (normal with variance 2 / fan_in, or fan_out), biases to 0. Does not change
/// norms.
void init_kaiming(torch::nn::Module& module, bool by_fan_out = false);

/// Stride and dilations of the convolutions of one layer of blocks.
struct LayerDilation {
  /// Stride of the first block.
  int64_t stride = 1;
  /// Dilation of the first block, and of the others.
  int64_t first = 1, rest = 1;
};

/// Limits the stride of a network: once the features are `output_stride` times
/// smaller than the image, further layers get stride 1, and the convolutions
/// after them are dilated instead, which keeps their receptive field (Chen et
/// al., "Rethinking Atrous Convolution for Semantic Image Segmentation", 2017).
/// As torchvision's `replace_stride_with_dilation`.
/// \param stem_stride  Stride of the network before its first layer of blocks.
/// \param strides      Of the layers, undilated.
/// \throws c10::ValueError unless output_stride is 8, 16 or 32.
std::vector<LayerDilation> dilate_layers(
    int64_t output_stride,
    int64_t stem_stride,
    const std::vector<int64_t>& strides);

/// Checks what the options of networks have in common, with upper bounds: the
/// numbers may come from a file.
/// \throws c10::ValueError unless num_classes is 0 to 1,000,000, in_channels 1
///         to 10,000, and the others are in [0, 1). `where` is for the message.
void check_network(
    const char* where,
    int64_t num_classes,
    int64_t in_channels,
    double dropout = 0,
    double stochastic_depth = 0);
/// \throws c10::ValueError unless `sizes`, called `what`, are four numbers from
///         1 to `most`.
void check_sizes(
    const char* where,
    const char* what,
    c10::ArrayRef<int64_t> sizes,
    int64_t most = 1000);

/// A network for images without its classifier: stages, each of which halves
/// height and width, except the last ones of a dilated network (see
/// `dilate_layers`), and the first of a ConvNeXt, which divides them by four.
class Backbone : public HasArchitecture {
 public:
  /// Returns the channels after each stage.
  virtual std::vector<int64_t> stage_channels() const = 0;
  /// Computes stage `index` from the previous stage, or from the images [N,
  /// in_channels, H, W]: [N, C, H / 2^(index + 1), W / 2^(index + 1)], rounded
  /// up (down by DenseNet and ConvNeXt); in a dilated network no smaller than
  /// its output stride says.
  virtual torch::Tensor stage(size_t index, const torch::Tensor& x) = 0;

  /// Whether stages are maps of features. Those of a ViT are not: it has one
  /// stage, which looks at the image as a whole, [N, C].
  virtual bool has_maps() const { return true; }

  /// Name and options of one that `named` made; of another, no name.
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
  /// Returns the means of the features, [N, C].
  torch::Tensor means(const torch::Tensor& x) {
    if (!has_maps()) return features(x);
    return torch::adaptive_avg_pool2d(features(x), {1, 1}).flatten(1);
  }
  /// Returns the output of every stage, from fine to coarse.
  Tensors stages(torch::Tensor x) {
    Tensors all;
    const size_t count = stage_channels().size();
    for (size_t i = 0; i < count; ++i) all.push_back(x = stage(i, x));
    return all;
  }

 private:
  Architecture architecture_;
};

/// Lists the options of a network by name, for its Architecture.
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

/// Creates a network that its name, that of `VisionArch`, and its options build
/// again.
template <class Net, class Options, class... Shape>
Net named(const char* name, Options options, const Shape&... shape) {
  Net net(shape..., options);
  net->set_architecture({name, to_json(fields_of(options))});
  return net;
}

}  // namespace tern
