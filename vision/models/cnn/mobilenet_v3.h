#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct MobileNetV3Options {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Dropout before the last layer of the classifier.
  double dropout = 0.2;
};

/// The mobile network of Howard et al., "Searching for MobileNetV3" (2019).
/// State-dict names and the distribution of initial weights match torchvision.
class MobileNetV3Impl : public torch::nn::Cloneable<MobileNetV3Impl>,
                        public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.7";
  static constexpr const char* kClassifier = "classifier.";

  MobileNetV3Impl(bool is_large, const MobileNetV3Options& options);
  void reset() override;

 private:
  bool is_large_;
  MobileNetV3Options options_;
};
TORCH_MODULE(MobileNetV3);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0 and dropout
///         is in [0, 1).
MobileNetV3 mobilenet_v3_small(const MobileNetV3Options& options = {});
MobileNetV3 mobilenet_v3_large(const MobileNetV3Options& options = {});

}  // namespace tern
