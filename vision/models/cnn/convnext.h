#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct ConvNeXtOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Probability of dropping the last block's residual branch in training, see
  /// StochasticDepth. The probability rises linearly from 0 for the first
  /// block. If not set, the paper's value for this size: 0.1 (tiny), 0.4
  /// (small), 0.5 (base).
  std::optional<double> stochastic_depth = std::nullopt;
};

/// Size of a ConvNeXt; see `convnext_tiny`.
struct ConvNeXtShape {
  std::array<int64_t, 4> channels, blocks;  // of each stage
  double stochastic_depth = 0;
};

/// The network of Liu et al., "A ConvNet for the 2020s" (2022). State-dict
/// names and the distribution of initial weights match torchvision.
///
/// As a Backbone it has four stages, with strides of 4, 8, 16 and 32; sizes are
/// rounded down. Images need at least 32 x 32 pixels.
class ConvNeXtImpl : public torch::nn::Cloneable<ConvNeXtImpl>,
                     public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.4";
  static constexpr const char* kClassifier = "classifier.";

  /// \throws c10::ValueError unless all numbers of the shape are positive; the
  ///         errors of `convnext_tiny`.
  ConvNeXtImpl(const ConvNeXtShape& shape, const ConvNeXtOptions& options);
  void reset() override;

 private:
  ConvNeXtShape shape_;
  ConvNeXtOptions options_;
};
TORCH_MODULE(ConvNeXt);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0 and
///         stochastic_depth is in [0, 1).
ConvNeXt convnext_tiny(const ConvNeXtOptions& options = {});
ConvNeXt convnext_small(const ConvNeXtOptions& options = {});
ConvNeXt convnext_base(const ConvNeXtOptions& options = {});

}  // namespace tern
