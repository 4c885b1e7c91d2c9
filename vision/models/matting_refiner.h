#pragma once

#include <cstdint>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/vision/models/coarse_matting.h"

namespace tern {

/// Where a picture is looked at once more at full size.
enum class RefineMode {
  full,         // everywhere
  sampling,     // at as many pixels as are asked for, where `err` is largest
  thresholding  // wherever `err` is above a threshold
};

/// "full", "sampling" or "thresholding".
std::string to_string(RefineMode mode);
/// \throws c10::ValueError listing the names there are.
RefineMode refine_mode(const std::string& name);

struct MattingRefineOptions {
  MattingBackbone backbone = MattingBackbone::mobilenet_v2;
  /// By how much pictures are shrunk for the backbone; in (0, 0.5].
  double backbone_scale = 0.25;
  RefineMode mode = RefineMode::sampling;
  /// Of each picture, in sampling; it refines in squares of 16.
  int64_t sample_pixels = 80000;
  /// Of err, 0..1, in thresholding.
  double threshold = 0.1;
  /// In sampling, leave out squares with err = 0 even if fewer than
  /// `sample_pixels` are then refined.
  bool prevent_oversampling = true;
  /// Of the refiner's convolutions: 3 or 1.
  int64_t kernel_size = 3;
};

/// What a refiner has made of a batch.
struct RefinedMatting {
  torch::Tensor pha;  // [N, 1, H, W]
  torch::Tensor fgr;  // [N, 3, H, W], without what is src's share
  torch::Tensor ref;  // [N, 1, H / 4, W / 4], 1 where it looked, else 0
};

/// Four small convolutions over squares of a picture, the first two at half its
/// size. A member of MattingRefine, which checks what it is given.
class MattingRefinerImpl : public torch::nn::Cloneable<MattingRefinerImpl> {
 public:
  explicit MattingRefinerImpl(const MattingRefineOptions& options);
  void reset() override;
  /// \param src, bgr  [N, 3, H, W], H and W divisible by 4.
  /// \param coarse    Of any size; `fgr` without src's share.
  RefinedMatting forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr,
      const MattingOutput& coarse);

  /// kernel_size stays as it is.
  void set_options(const MattingRefineOptions& options);

 private:
  torch::Tensor choose(const torch::Tensor& err) const;
  torch::Tensor convolve(const torch::Tensor& half, const torch::Tensor& whole);

  MattingRefineOptions options_;
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr},
      conv4_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
};
TORCH_MODULE(MattingRefiner);

}  // namespace tern
