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

/// Levels that a feature pyramid adds to those of the body.
enum class ExtraLevels {
  none,
  max_pool,    ///< torchvision's LastLevelMaxPool: the last level, subsampled
  p6p7_of_p5,  ///< LastLevelP6P7 on the pyramid's last level
  p6p7_of_c5,  ///< LastLevelP6P7 on the body's last features
};

/// Two more levels, each half as large, by convolutions with stride 2.
/// torchvision's LastLevelP6P7, with its names and initial weights.
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
/// Detection" (2017): each level is the body's features there plus the enlarged
/// coarser level. torchvision's FeaturePyramidNetwork, with its names and
/// initial weights.
///
///   FeaturePyramidNetwork fpn(body->stage_channels());
///   Tensors levels = fpn->forward(body->stages(images));
class FeaturePyramidNetworkImpl
    : public torch::nn::Cloneable<FeaturePyramidNetworkImpl> {
 public:
  /// \param in_channels  Of each feature map, from fine to coarse.
  /// \throws c10::ValueError unless all channels are positive, and there is a
  ///         feature map.
  explicit FeaturePyramidNetworkImpl(
      std::vector<int64_t> in_channels,
      FeaturePyramidOptions options = {});
  void reset() override;
  /// \param features  [N, in_channels[i], H_i, W_i], from fine to coarse.
  /// \return          [N, out_channels, H_i, W_i] of each, then the extra
  ///                  levels.
  /// \throws c10::ValueError for another number of feature maps.
  Tensors forward(const Tensors& features);

 private:
  std::vector<int64_t> in_channels_;
  FeaturePyramidOptions options_;
  torch::nn::ModuleList inner_blocks_{nullptr}, layer_blocks_{nullptr};
  LastLevelP6P7 extra_blocks_{nullptr};
};
TORCH_MODULE(FeaturePyramidNetwork);

}  // namespace tern
