#pragma once

#include <array>
#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct SwinOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Dropout after linear layers, and of the attention weights.
  double dropout = 0, attention_dropout = 0;
  /// Probability of dropping the last block's residual branches in training,
  /// see StochasticDepth. The probability rises linearly from 0 for the first
  /// block.
  double stochastic_depth = 0.2;
};

/// Size of a Swin Transformer; see `swin_t`.
struct SwinShape {
  int64_t width = 96;  // of the first stage; doubles with every stage
  std::array<int64_t, 4> blocks = {2, 2, 6, 2}, heads = {3, 6, 12, 24};
};

/// The transformer of Liu et al., "Swin Transformer: Hierarchical Vision
/// Transformer using Shifted Windows" (2021): attention within windows of 7 x 7
/// cells, shifted by half a window in every other block. State-dict names and
/// the distribution of initial weights match torchvision.
///
/// As a Backbone it has four stages, with strides of 4 (size rounded down), 8,
/// 16 and 32 (rounded up).
class SwinImpl : public torch::nn::Cloneable<SwinImpl>, public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.4";
  static constexpr const char* kClassifier = "head.";

  /// \throws c10::ValueError for an invalid shape; the errors of `swin_t`.
  SwinImpl(const SwinShape& shape, const SwinOptions& options);
  void reset() override;
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;

 private:
  SwinShape shape_;
  SwinOptions options_;
  LayerNorm2d norm_{nullptr};  // after the last stage
};
TORCH_MODULE(Swin);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0 and the
///         other options are in [0, 1).
Swin swin_t(const SwinOptions& options = {});

}  // namespace tern
