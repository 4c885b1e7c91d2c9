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
  /// Before the classifier. None: the paper's for this size, 0.2 (B0, B1) or
  /// 0.3 (B2, B3).
  std::optional<double> dropout = std::nullopt;
  /// Share of the samples for which the last block would be dropped in
  /// training, see StochasticDepth; it rises block by block from 0.
  double stochastic_depth = 0.2;
};

/// Size of an EfficientNet, such as that of `efficientnet_b0`.
struct EfficientNetShape {
  double width = 1, depth = 1;  // times the channels and the blocks of B0
  double dropout = 0.2;
};

/// The network of Tan and Le, "EfficientNet: Rethinking Model Scaling for
/// Convolutional Neural Networks" (2019), with torchvision's names in its state
/// dict and its initial weights' distribution.
class EfficientNetImpl : public torch::nn::Cloneable<EfficientNetImpl>,
                         public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.4";
  static constexpr const char* kClassifier = "classifier.";

  /// \throws c10::ValueError unless the numbers of the shape are positive, and
  ///         as `efficientnet_b0`.
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
