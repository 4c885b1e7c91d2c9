#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/layers.h"

namespace tern {

struct RegNetOptions {
  /// 0: no classifier; `forward` then returns the means of the features.
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
};

/// Size of a RegNet; see `regnet_y_400mf`.
struct RegNetShape {
  std::array<int64_t, 4> channels, blocks;  // of each stage
  int64_t group_width = 8;  // channels per group of the 3x3 convolutions
};

/// The network of Radosavovic et al., "Designing Network Design Spaces" (2020),
/// with squeeze-and-excitation (RegNetY). State-dict names and the distribution
/// of initial weights match torchvision.
class RegNetImpl : public torch::nn::Cloneable<RegNetImpl>, public Backbone {
 public:
  static constexpr const char* kSecondGroup = "trunk_output.block3";
  static constexpr const char* kClassifier = "fc.";

  /// \throws c10::ValueError unless all numbers of the shape are positive and
  ///         the channels are multiples of group_width; the errors of
  ///         `regnet_y_400mf`.
  RegNetImpl(const RegNetShape& shape, const RegNetOptions& options);
  void reset() override;
  /// [N, in_channels, H, W] -> [N, num_classes], logits.
  torch::Tensor forward(const torch::Tensor& x);

  std::vector<int64_t> stage_channels() const override;
  torch::Tensor stage(size_t index, const torch::Tensor& x) override;

 private:
  RegNetShape shape_;
  RegNetOptions options_;
  ConvLayer stem_{nullptr};
  Layers trunk_{nullptr};
  torch::nn::Linear fc_{nullptr};
};
TORCH_MODULE(RegNet);

/// \throws c10::ValueError unless num_classes >= 0 and in_channels > 0.
RegNet regnet_y_400mf(const RegNetOptions& options = {});
RegNet regnet_y_8gf(const RegNetOptions& options = {});

}  // namespace tern
