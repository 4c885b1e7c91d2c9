#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct MBConvOptions {
  /// Channels of the input, of the depthwise convolution, and of the output.
  int64_t in, wide, out;
  int64_t kernel_size = 3, stride = 1;
  /// Hidden channels of the SqueezeExcitation; 0 for none.
  int64_t squeezed = 0;
  LayerEnd squeezed_end = LayerEnd::relu, gate = LayerEnd::sigmoid;
  LayerEnd end = LayerEnd::silu;
  double eps = 1e-5, momentum = 0.1;  // of the BatchNorms
};

/// The block of EfficientNet and MobileNetV3: a 1x1 convolution that increases
/// the channels, a depthwise convolution, a SqueezeExcitation, and a 1x1
/// convolution that reduces the channels. Adds its input if input and output
/// have the same shape. [N, in, H, W] -> [N, out, H / stride, W / stride],
/// rounded up.
class MBConvImpl : public torch::nn::Cloneable<MBConvImpl>,
                   public StochasticDepth {
 public:
  explicit MBConvImpl(const MBConvOptions& options);
  void reset() override;
  torch::Tensor forward(const torch::Tensor& x);

 private:
  MBConvOptions options_;
  Layers block_{nullptr};
};
TORCH_MODULE(MBConv);

/// Rounds a number of channels to the nearest multiple of 8, at least 8. Rounds
/// up instead if rounding down would remove more than 10%.
int64_t round_to_eights(double channels);

}  // namespace tern
