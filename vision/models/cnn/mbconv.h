#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct MBConvOptions {
  /// Channels of the input, between, and of the output.
  int64_t in, wide, out;
  int64_t kernel_size = 3, stride = 1;
  /// Channels within the SqueezeExcitation; 0: there is none.
  int64_t squeezed = 0;
  LayerEnd squeezed_end = LayerEnd::relu, gate = LayerEnd::sigmoid;
  LayerEnd end = LayerEnd::silu;
  double eps = 1e-5, momentum = 0.1;  // of the norms
};

/// The block of EfficientNet and MobileNetV3: widens by 1x1, filters each
/// channel, weighs the channels by a SqueezeExcitation, narrows by 1x1, and
/// adds its input where shapes allow. [N, in, H, W] -> [N, out, H / stride, W /
/// stride], rounded up.
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

/// Rounds a number of channels to a multiple of 8, but not down by more than a
/// tenth.
int64_t round_to_eights(double channels);

}  // namespace tern
