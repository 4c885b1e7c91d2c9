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

/// Positions of squares on a grid over a batch of images: square i is at
/// `row[i]`, `column[i]` of image `image[i]`.
struct PatchPlaces {
  torch::Tensor image, row, column;  // [P] kLong

  int64_t size() const { return image.size(0); }
};

/// Returns the positions at which `chosen` [N, h, w] is not 0. Synchronizes
/// with a GPU, because the number of squares determines the shapes of later
/// tensors.
PatchPlaces patch_places(const torch::Tensor& chosen);

/// Crops squares from images.
///
/// \param images  [N, C, h * side, w * side].
/// \param places  On the grid [N, h, w], on the device of `images`.
/// \param border  Margin around each square, in pixels; zeros outside the
///                image.
/// \return        [P, C, side + 2 * border, side + 2 * border], channels-last
///
/// Copies whole rows of a patch at once, with all channels.
torch::Tensor crop_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    int64_t side,
    int64_t border);

/// Replaces squares of images by patches.
///
/// \param images   [N, C, h * side, w * side]. May be modified in place, so it
///                 must not be a leaf that requires gradients.
/// \param places   On the grid [N, h, w], each at most once.
/// \param patches  [P, C, side, side]; converted to the dtype of `images`.
/// \return         Same shape and dtype as `images`, channels-last
torch::Tensor replace_patches(
    const torch::Tensor& images,
    const PatchPlaces& places,
    const torch::Tensor& patches);

/// Selects where an image is refined at full resolution.
enum class RefineMode {
  full,         // everywhere
  sampling,     // a given number of pixels with the largest `err`
  thresholding  // wherever `err` exceeds a threshold
};

/// Returns "full", "sampling" or "thresholding".
std::string to_string(RefineMode mode);
/// \throws c10::ValueError listing the valid names.
RefineMode refine_mode(const std::string& name);

struct MattingRefineOptions {
  MattingBackbone backbone = MattingBackbone::mobilenet_v2;
  /// Scale of the images that the backbone sees; in (0, 0.5].
  double backbone_scale = 0.25;
  RefineMode mode = RefineMode::sampling;
  /// Number of pixels to refine per image in mode `sampling`, in squares of 16
  /// pixels.
  int64_t sample_pixels = 80000;
  /// Threshold of err, 0..1, in mode `thresholding`.
  double threshold = 0.1;
  /// In mode `sampling`, skips squares with err = 0, even if fewer than
  /// `sample_pixels` are then refined.
  bool prevent_oversampling = true;
  /// Kernel size of the refiner's convolutions: 3 or 1.
  int64_t kernel_size = 3;
};

class MattingRefinerImpl;

/// Outputs of MattingRefine; h and w are the size of the downscaled image for
/// the backbone.
struct MattingRefineOutput {
  torch::Tensor pha;     // [N, 1, H, W], 0..1
  torch::Tensor fgr;     // [N, 3, H, W], RGB, 0..1
  torch::Tensor pha_sm;  // [N, 1, h, w], before the refiner
  torch::Tensor fgr_sm;  // [N, 3, h, w]
  torch::Tensor err_sm;  // [N, 1, h, w], expected error of pha_sm, 0..1
  torch::Tensor ref_sm;  // [N, 1, H / 4, W / 4], 1 where refined, else 0

  /// Converts to the outputs that a Learner expects, in the order above.
  // NOLINTNEXTLINE: implicit on purpose
  operator Tensors() const {
    return {pha, fgr, pha_sm, fgr_sm, err_sm, ref_sm};
  }
};

/// The complete network of Lin et al., "Real-Time High-Resolution Background
/// Matting" (CVPR 2021): a coarse network like MattingBase on a downscaled
/// image, and a refiner at full resolution where the expected error is large.
/// State-dict names match the paper's code.
///
///   MattingRefine net(MattingRefineOptions{.sample_pixels = 20000});
///   MattingRefineOutput out = net->forward(src, bgr);
///   Learner learn(data, net, {.loss = loss});
///   learn.split({"aspp", "decoder", "refiner"})
///       .fit(1, {5e-5, 5e-5, 1e-4, 3e-4});
///
/// The outputs in a Learner are pha, fgr, pha_sm, fgr_sm, err_sm and ref_sm, in
/// this order.
class MattingRefineImpl : public torch::nn::Cloneable<MattingRefineImpl>,
                          public HasArchitecture {
 public:
  /// \throws c10::ValueError for a backbone_scale outside (0, 0.5],
  ///         sample_pixels below 16, a threshold outside [0, 1], or a
  ///         kernel_size other than 1 or 3.
  explicit MattingRefineImpl(const MattingRefineOptions& options = {});
  void reset() override;
  /// \param src, bgr  [N, 3, H, W] floating, RGB in 0..1: the images, and their
  ///                  backgrounds without the foreground. H and W must be
  ///                  divisible by 4; in mode `sampling`, H * W must be at
  ///                  least sample_pixels.
  /// \throws c10::ValueError for any other inputs, and for N = 1 in training.
  MattingRefineOutput forward(
      const torch::Tensor& src,
      const torch::Tensor& bgr);
  /// Returns "matting_refine".
  Architecture architecture() const override;

  const MattingRefineOptions& options() const { return options_; }
  /// Changes the refinement options, for example for images of a different size
  /// than in training.
  /// \throws the errors of the constructor; c10::ValueError if backbone or
  ///         kernel_size differ, because the weights would not fit.
  void set_options(const MattingRefineOptions& options);

 private:
  MattingRefineOptions options_;
  std::optional<CoarseMatting> coarse_;
  std::shared_ptr<MattingRefinerImpl> refiner_;
};
TORCH_MODULE(MattingRefine);

/// Builds the network that MattingRefineImpl::architecture describes; see
/// `build_model`.
MattingRefine build_matting_refine(const Architecture& architecture);

}  // namespace tern
