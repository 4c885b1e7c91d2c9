#pragma once

#include <cstdint>
#include <optional>

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/weights/architecture.h"
#include "tern/vision/models/matting_base.h"

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

/// What MattingRefine sees in a picture; h and w are those of the smaller one
/// that its backbone was shown.
struct MattingRefineOutput {
  torch::Tensor pha;     // [N, 1, H, W], 0..1
  torch::Tensor fgr;     // [N, 3, H, W], RGB, 0..1
  torch::Tensor pha_sm;  // [N, 1, h, w], before the refiner
  torch::Tensor fgr_sm;  // [N, 3, h, w]
  torch::Tensor err_sm;  // [N, 1, h, w], how wrong pha_sm may be, 0..1
  torch::Tensor ref_sm;  // [N, 1, H / 4, W / 4], 1 where it was refined, else 0

  /// In the order above, as a Learner's outputs.
  // NOLINTNEXTLINE: implicit on purpose
  operator Tensors() const {
    return {pha, fgr, pha_sm, fgr_sm, err_sm, ref_sm};
  }
};

/// MattingBase on a smaller picture, and a refiner that looks again at full
/// size where the first may be wrong: the whole network of Lin et al.,
/// "Real-Time High-Resolution Background Matting" (CVPR 2021), with the names
/// of the paper's program in its state dict.
///
///   MattingRefine net(MattingRefineOptions{.sample_pixels = 20000});
///   MattingRefineOutput out = net->forward(src, bgr);
///   Learner learn(data, net, {.loss = loss});
///   learn.split({"aspp", "decoder", "refiner"})
///       .fit(1, {5e-5, 5e-5, 1e-4, 3e-4});
///
/// A Learner's outputs are pha, fgr, pha_sm, fgr_sm, err_sm and ref_sm, in that
/// order.
class MattingRefineImpl : public torch::nn::Cloneable<MattingRefineImpl>,
                          public HasArchitecture {
 public:
  /// \throws c10::ValueError for a backbone_scale outside (0, 0.5],
  ///         sample_pixels below 16, a threshold outside [0, 1] or a
  ///         kernel_size that is neither 1 nor 3.
  explicit MattingRefineImpl(const MattingRefineOptions& options = {});
  void reset() override;
  /// \param src, bgr  [N, 3, H, W] floating, RGB in 0..1: pictures, and their
  ///                  backgrounds without the foreground. H and W are divisible
  ///                  by 4, and in sampling H * W >= sample_pixels.
  /// \throws c10::ValueError for other inputs, and for N = 1 in training.
  MattingRefineOutput forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr);
  /// "matting_refine".
  Architecture architecture() const override;

  const MattingRefineOptions& options() const { return options_; }
  /// Chooses anew where to refine, as for pictures of another size than those
  /// that it was trained with.
  /// \throws c10::ValueError as the constructor, or if backbone or kernel_size
  ///         differ: the weights would not fit.
  void set_options(const MattingRefineOptions& options);

 private:
  MattingRefineOptions options_;
  std::optional<CoarseMatting> coarse_;
  MattingRefiner refiner_{nullptr};
};
TORCH_MODULE(MattingRefine);

/// The network that MattingRefineImpl::architecture has described; see
/// `build_model`.
/// \throws DataError if its options are not those of a MattingRefine,
///         c10::ValueError if they name no backbone or mode, or are wrong.
MattingRefine build_matting_refine(const Architecture& architecture);

}  // namespace tern
