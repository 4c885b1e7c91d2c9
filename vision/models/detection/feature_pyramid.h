#pragma once

#include <cstdint>
#include <vector>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// Levels that a feature pyramid adds after the levels of the backbone.
enum class ExtraLevels {
  none,
  max_pool,    ///< torchvision's LastLevelMaxPool: subsamples the last level
  p6p7_of_p5,  ///< LastLevelP6P7 applied to the pyramid's last level
  p6p7_of_c5,  ///< LastLevelP6P7 applied to the backbone's last features
};

/// Adds two levels by convolutions with stride 2; each level has half the size
/// of the previous one. Same as torchvision's LastLevelP6P7, including names
/// and initial weights.
class LastLevelP6P7Impl : public torch::nn::Cloneable<LastLevelP6P7Impl> {
 public:
  LastLevelP6P7Impl(int64_t in_channels, int64_t out_channels);
  void reset() override;
  /// [N, in_channels, H, W] -> [N, out_channels, H / 2, W / 2] and [N,
  /// out_channels, H / 4, W / 4], rounded up.
  Tensors forward(const torch::Tensor& x);

 private:
  int64_t in_channels_, out_channels_;
  torch::nn::Conv2d p6_{nullptr}, p7_{nullptr};
};
TORCH_MODULE(LastLevelP6P7);

struct FeaturePyramidOptions {
  /// Channels of every level.
  int64_t out_channels = 256;
  ExtraLevels extra = ExtraLevels::none;
};

/// The feature pyramid of Lin et al., "Feature Pyramid Networks for Object
/// Detection" (2017). Each level is the sum of the backbone's features at that
/// resolution and the upsampled next coarser level. Same as torchvision's
/// FeaturePyramidNetwork, including names and initial weights.
///
///   FeaturePyramidNetwork fpn(body->stage_channels());
///   Tensors levels = fpn->forward(body->stages(images));
class FeaturePyramidNetworkImpl
    : public torch::nn::Cloneable<FeaturePyramidNetworkImpl> {
 public:
  /// \param in_channels  Channels of each feature map, from high to low
  ///                     resolution.
  /// \throws c10::ValueError unless all channels are positive and there is at
  ///         least one feature map.
  explicit FeaturePyramidNetworkImpl(
      std::vector<int64_t> in_channels,
      FeaturePyramidOptions options = {});
  void reset() override;
  /// \param features  [N, in_channels[i], H_i, W_i], from high to low
  ///                  resolution.
  /// \return          [N, out_channels, H_i, W_i] for each, then the extra
  ///                  levels.
  /// \throws c10::ValueError if the number of feature maps differs from
  ///         `in_channels`.
  Tensors forward(const Tensors& features);

 private:
  std::vector<int64_t> in_channels_;
  FeaturePyramidOptions options_;
  torch::nn::ModuleList inner_blocks_{nullptr}, layer_blocks_{nullptr};
  LastLevelP6P7 extra_blocks_{nullptr};
};
TORCH_MODULE(FeaturePyramidNetwork);

}  // namespace tern
