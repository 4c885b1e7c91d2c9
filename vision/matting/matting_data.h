#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tern/data/data_bunch.h"
#include "tern/vision/matting/matting_dataset.h"

namespace tern {

/// Options for augmenting training batches of a MattingDataset. The defaults
/// are BackgroundMattingV2's. Each `p_` is the probability per image.
struct MattingAugmentOptions {
  /// Minimum height and width of a batch, as a fraction of the image size. Both
  /// are drawn per batch and are multiples of 4. At 1, batches keep the size of
  /// the images.
  float min_crop = 0.5f;

  /// Probability that the foreground casts a shadow: its alpha, transformed,
  /// with an opacity of up to 0.3, and box-blurred over squares of
  /// `min_shadow_blur` to `max_shadow_blur` pixels.
  float p_shadow = 0.3f;
  int64_t min_shadow_blur = 20, max_shadow_blur = 39;

  /// Probability of Gaussian noise on scene and background, with a standard
  /// deviation of up to 0.03.
  float p_noise = 0.4f;

  /// Probability of color jitter of the background: brightness, contrast and
  /// saturation change by up to 18%, hue by up to a tenth of the circle.
  float p_jitter = 0.8f;

  /// Probability of camera motion: the background rotates by up to 1 degree and
  /// moves by up to 1% of its size.
  float p_affine = 0.3f;
};

/// Returns a batch transform that composites batches of a MattingDataset into
/// inputs and targets for a matting network:
///
///   inputs fgr, bgr [N, H, W, 3] kByte   ->  src, bgr [N, 3, h, w] kFloat
///   target pha [N, H, W] kByte           ->  pha [N, 1, h, w] kFloat and
///                                            fgr [N, 3, h, w] kFloat
///
/// All outputs are in 0..1, and `src = fgr * pha + bgr * (1 - pha)`.
///
/// Resizes training batches to cover a random size, center-crops them and
/// augments them: adds the shadow, the foreground and noise, then changes only
/// the background. Other batches are only composited.
///
/// Runs on the device of the batch without synchronizing with it. Random
/// numbers depend only on the run's seed, the epoch and the batch, so that a
/// resumed run draws the same numbers.
///
/// \throws c10::ValueError for an option out of range. The returned transform
///         throws it for batches of any other form.
BatchTransform matting_augment(const MattingAugmentOptions& options = {});

struct MattingDataOptions {
  /// Size and transforms of the images.
  MattingDatasetOptions dataset = {};
  /// Augmentation of training batches on the device.
  MattingAugmentOptions augment = {};
  /// Fraction of the pairs, and of the backgrounds, used for validation if the
  /// folders have no train and valid subfolders.
  double valid_pct = 0.2;
  /// Maximum number of validation samples, taken at even intervals; 0: all.
  int64_t valid_samples = 50;
  /// Seed of the split, the sample order and the augmentation.
  uint64_t seed = 42;
  int64_t batch_size = 8;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// If not set, `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};
};

/// Creates the data for training background matting from folders with this
/// layout:
///
///   pairs/{train,valid}/{pha,fgr}/*, or pairs/{pha,fgr}/* to split at random;
///   backgrounds/{train,valid}/*, or any folder of photos to split at random.
///
///   auto data = matting_data("videomatte", "backgrounds", {.batch_size = 8});
///
/// Batches have the form that `matting_augment` produces.
/// \throws the errors of `find_matting_files` and `check_matting_files`;
///         DataError if only one of the two folders has train and valid;
///         c10::ValueError for an invalid option.
DataBunch matting_data(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds,
    const MattingDataOptions& options = {});

}  // namespace tern
