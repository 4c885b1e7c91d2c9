#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct EfficientNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Dropout before the classifier. If not set, the paper's value for this
  /// size: 0.2 (B0, B1) or 0.3 (B2, B3).
  std::optional<double> dropout = std::nullopt;
  /// Probability of dropping a block's residual branch in training, see
  /// StochasticDepth. Block i of n uses stochastic_depth * i / n, counted from
  /// 0.
  double stochastic_depth = 0.2;
};

/// Size of an EfficientNet; see `efficientnet_b0`.
struct EfficientNetShape {
  double width = 1, depth = 1;  // multipliers of B0's channels and blocks
  double dropout = 0.2;
};

/// The network of Tan and Le, "EfficientNet: Rethinking Model Scaling for
/// Convolutional Neural Networks" (2019). State-dict names and the distribution
/// of initial weights match torchvision.
class EfficientNetImpl : public torch::nn::Cloneable<EfficientNetImpl>,
                         public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.4";
  static constexpr const char* kClassifier = "classifier.";

  /// \throws c10::ValueError unless all numbers of the shape are positive; the
  ///         errors of `efficientnet_b0`.
  EfficientNetImpl(
      const EfficientNetShape& shape,
      const EfficientNetOptions& options);
  void reset() override;

 private:
  EfficientNetShape shape_;
  EfficientNetOptions options_;
};
TORCH_MODULE(EfficientNet);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0, and
///         dropout and stochastic_depth are in [0, 1).
EfficientNet efficientnet_b0(const EfficientNetOptions& options = {});
EfficientNet efficientnet_b1(const EfficientNetOptions& options = {});
EfficientNet efficientnet_b2(const EfficientNetOptions& options = {});
EfficientNet efficientnet_b3(const EfficientNetOptions& options = {});

}  // namespace tern
