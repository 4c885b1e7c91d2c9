#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace tern {

/// What ends a ConvLayer.
enum class LayerEnd { linear, relu, relu6 };

struct ConvLayerOptions {
  int64_t kernel_size = 3;  // padded by half of what it spans
  int64_t stride = 1;
  int64_t dilation = 1;
  int64_t groups = 1;
  /// BatchNorm behind the convolution; without it the convolution has a bias.
  bool norm = true;
  LayerEnd end = LayerEnd::relu;
};

/// Convolution, BatchNorm, ReLU, under the names "0" and "1" that they have in
/// torchvision's Conv2dNormActivation and fastai's ConvLayer.
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

/// Stores the weights of all convolutions channels-last, the layout in which
/// images leave the loader and which the layers then keep.
void store_channels_last(torch::nn::Module& module);

/// He's initial values for all convolutions and linear layers in a module
/// (normal with variance 2 / fan_in, or fan_out), biases 0. Norms are left
/// alone.
void init_kaiming(torch::nn::Module& module, bool by_fan_out = false);

}  // namespace tern
