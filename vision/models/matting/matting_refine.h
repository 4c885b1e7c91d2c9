#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "tern/learner/export/architecture.h"
#include "tern/vision/models/matting/matting_base.h"

namespace tern {

/// Squares of the images of a batch, on a grid: entry i is at `row[i]`,
/// `column[i]` of image `image[i]`.
struct PatchPlaces {
  torch::Tensor image, row, column;  // [P] kLong

  int64_t size() const { return image.size(0); }
};

/// Returns where `chosen` [N, h, w] is not 0. Synchronizes with a GPU: the
/// number of squares determines the shapes that follow.
PatchPlaces patch_places(const torch::Tensor& chosen);

/// Crops squares from images.
///
/// \param images  [N, C, h * side, w * side].
/// \param places  On the grid [N, h, w], on the device of `images`.
/// \param border  Margin of a patch around its square; zeros outside of the
///                image.
/// \return [P, C, side + 2 * border, side + 2 * border], channels-last.
///
/// Copies whole rows of a patch, all channels at once.
torch::Tensor crop_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    int64_t side,
    int64_t border);

/// Replaces squares of images by patches.
///
/// \param images   [N, C, h * side, w * side]; may be modified in place, so not
///                 a leaf that requires gradients.
/// \param places   On the grid [N, h, w], each at most once.
/// \param patches  [P, C, side, side]; converted to the dtype of `images`.
/// \return as `images`, channels-last.
torch::Tensor replace_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    const torch::Tensor& patches);

/// Where an image is refined at full size.
enum class RefineMode {
  full,         // everywhere
  sampling,     // at a given number of pixels, where `err` is largest
  thresholding  // wherever `err` is above a threshold
};

/// "full", "sampling" or "thresholding".
std::string to_string(RefineMode mode);
/// \throws c10::ValueError listing the valid names.
RefineMode refine_mode(const std::string& name);

struct MattingRefineOptions {
  MattingBackbone backbone = MattingBackbone::mobilenet_v2;
  /// Scale of the images for the backbone; in (0, 0.5].
  double backbone_scale = 0.25;
  RefineMode mode = RefineMode::sampling;
  /// Pixels to refine per image, in sampling; refines squares of 16.
  int64_t sample_pixels = 80000;
  /// Threshold of err, 0..1, in thresholding.
  double threshold = 0.1;
  /// In sampling, skips squares with err = 0 even if fewer than `sample_pixels`
  /// are then refined.
  bool prevent_oversampling = true;
  /// Kernel size of the refiner's convolutions: 3 or 1.
  int64_t kernel_size = 3;
};

class MattingRefinerImpl;

/// Output of MattingRefine; h and w are the size of the backbone's smaller
/// image.
struct MattingRefineOutput {
  torch::Tensor pha;     // [N, 1, H, W], 0..1
  torch::Tensor fgr;     // [N, 3, H, W], RGB, 0..1
  torch::Tensor pha_sm;  // [N, 1, h, w], before the refiner
  torch::Tensor fgr_sm;  // [N, 3, h, w]
  torch::Tensor err_sm;  // [N, 1, h, w], expected error of pha_sm, 0..1
  torch::Tensor ref_sm;  // [N, 1, H / 4, W / 4], 1 where refined, else 0

  /// In the order above, as a Learner's outputs.
  // NOLINTNEXTLINE: implicit on purpose
  operator Tensors() const {
    return {pha, fgr, pha_sm, fgr_sm, err_sm, ref_sm};
  }
};

/// MattingBase on a smaller image, and a refiner at full size where its error
/// may be large: the complete network of Lin et al., "Real-Time High-Resolution
/// Background Matting" (CVPR 2021), with the names of the paper's code in its
/// state dict.
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
  /// \param src, bgr  [N, 3, H, W] floating, RGB in 0..1: images, and their
  ///                  backgrounds without the foreground. H and W are divisible
  ///                  by 4, and in sampling H * W >= sample_pixels.
  /// \throws c10::ValueError for other inputs, and for N = 1 in training.
  MattingRefineOutput forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr);
  /// "matting_refine".
  Architecture architecture() const override;

  const MattingRefineOptions& options() const { return options_; }
  /// Changes where to refine, as for images of another size than in training.
  /// \throws c10::ValueError as the constructor, or if backbone or kernel_size
  ///         differ: the weights would not fit.
  void set_options(const MattingRefineOptions& options);

 private:
  MattingRefineOptions options_;
  std::optional<CoarseMatting> coarse_;
  std::shared_ptr<MattingRefinerImpl> refiner_;
};
TORCH_MODULE(MattingRefine);

/// Builds what MattingRefineImpl::architecture describes; see `build_model`.
MattingRefine build_matting_refine(const Architecture& architecture);

}  // namespace tern
