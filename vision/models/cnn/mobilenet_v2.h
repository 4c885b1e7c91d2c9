#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct MobileNetV2Options {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  /// Dropout before the classifier.
  double dropout = 0.2;
  /// Output stride of the features: 32, 16 or 8. With 16 and 8, the
  /// convolutions of the last blocks are dilated.
  int64_t output_stride = 32;
  /// Ends `features` with a 1x1 convolution to 1280 channels. If false, which
  /// requires num_classes = 0, the features are the 320 channels of the last
  /// block.
  bool last_convolution = true;
};

/// The mobile network of Sandler et al., "MobileNetV2: Inverted Residuals and
/// Linear Bottlenecks". State-dict names and the distribution of initial
/// weights match torchvision.
class MobileNetV2Impl : public torch::nn::Cloneable<MobileNetV2Impl>,
                        public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.7";
  static constexpr const char* kClassifier = "classifier.";

  explicit MobileNetV2Impl(const MobileNetV2Options& options);
  void reset() override;

 private:
  MobileNetV2Options options_;
};
TORCH_MODULE(MobileNetV2);

/// \throws c10::ValueError unless num_classes >= 0, in_channels > 0, dropout is
///         in [0, 1) and output_stride is 8, 16 or 32; also if num_classes > 0
///         without `last_convolution`.
MobileNetV2 mobilenet_v2(const MobileNetV2Options& options = {});

}  // namespace tern
