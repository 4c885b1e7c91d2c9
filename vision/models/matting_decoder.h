#pragma once

#include <array>
#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// Enlarges coarse features to the size of the picture in four steps, each a
/// bilinear resize to a finer map, that map beside it, and a 3x3 convolution
/// (Lin et al., "Real-Time High-Resolution Background Matting", 2021).
class MattingDecoderImpl : public torch::nn::Cloneable<MattingDecoderImpl> {
 public:
  /// \param channels  Of the coarse features, and after each step.
  /// \param skips     Of the finer maps, the coarsest first.
  MattingDecoderImpl(
      const std::array<int64_t, 5>& channels,
      const std::array<int64_t, 4>& skips);
  void reset() override;
  /// [N, channels[0], h, w] and four maps -> [N, channels[4], H, W], as large
  /// as the last map.
  torch::Tensor forward(torch::Tensor x, const Tensors& skips);

 private:
  std::array<int64_t, 5> channels_;
  std::array<int64_t, 4> skips_;
  std::array<torch::nn::Conv2d, 4> convs_{nullptr, nullptr, nullptr, nullptr};
  std::array<torch::nn::BatchNorm2d, 3> norms_{nullptr, nullptr, nullptr};
};
TORCH_MODULE(MattingDecoder);

}  // namespace tern
