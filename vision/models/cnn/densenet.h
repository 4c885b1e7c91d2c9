#pragma once

#include <array>
#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct DenseNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// Size of a DenseNet; see `densenet121`.
struct DenseNetShape {
  std::array<int64_t, 4> blocks;  // number of layers in each dense block
  int64_t growth = 32;            // channels that each layer adds
};

/// The network of Huang et al., "Densely Connected Convolutional Networks"
/// (2017). State-dict names and the distribution of initial weights match
/// torchvision. Images need at least 29 x 29 pixels.
class DenseNetImpl : public torch::nn::Cloneable<DenseNetImpl>,
                     public FeatureNetwork {
 public:
  static constexpr const char* kSecondGroup = "features.transition2";
  static constexpr const char* kClassifier = "classifier.";

  /// \throws c10::ValueError unless all numbers of the shape are positive; the
  ///         errors of `densenet121`.
  DenseNetImpl(const DenseNetShape& shape, const DenseNetOptions& options);
  void reset() override;

 private:
  DenseNetShape shape_;
  DenseNetOptions options_;
};
TORCH_MODULE(DenseNet);

/// \throws c10::ValueError unless num_classes >= 0 and in_channels > 0.
DenseNet densenet121(const DenseNetOptions& options = {});

}  // namespace tern
