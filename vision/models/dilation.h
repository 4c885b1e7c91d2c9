#pragma once

#include <cstdint>

namespace tern {

/// How the convolutions of one layer of blocks step and spread.
struct LayerDilation {
  /// Of the first block.
  int64_t stride = 1;
  /// Of the first block, and of those that follow.
  int64_t first = 1, rest = 1;
};

/// Keeps a network's features fine: once they are `output_stride` times smaller
/// than the image, a layer that would halve them again gets stride 1, and the
/// convolutions behind it are dilated instead, so that they see as far as
/// before (Chen et al., "Rethinking Atrous Convolution for Semantic Image
/// Segmentation", 2017). As torchvision's `replace_stride_with_dilation`.
class DilationPlan {
 public:
  /// \param stem_stride  How many times the network has shrunk the image before
  ///                     its first layer of blocks.
  /// \throws c10::ValueError unless output_stride is 8, 16 or 32.
  DilationPlan(int64_t output_stride, int64_t stem_stride);

  /// For the next layer, which undilated would have this stride.
  LayerDilation next(int64_t stride);

 private:
  int64_t output_stride_, stride_, dilation_ = 1;
};

}  // namespace tern
