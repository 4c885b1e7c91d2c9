#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tern/data/data_bunch.h"
#include "tern/vision/matting/matting_dataset.h"

namespace tern {

/// Augmentation of training batches of a MattingDataset; the defaults are
/// BackgroundMattingV2's. Probabilities are per image.
struct MattingAugmentOptions {
  /// Minimum height and width of a batch, as a fraction of its images'; both
  /// are drawn per batch, as multiples of 4. 1: always whole images.
  float min_crop = 0.5f;

  /// The foreground casts a shadow: its alpha, transformed, with an opacity of
  /// up to 0.3, and box-blurred over squares of so many pixels.
  float p_shadow = 0.3f;
  int64_t min_shadow_blur = 20, max_shadow_blur = 39;

  /// Gaussian noise on scene and background, of a standard deviation of up to
  /// 0.03.
  float p_noise = 0.4f;

  /// Color jitter of the background: its brightness, contrast and saturation
  /// change by up to 18 %, its hue by up to a tenth of the circle.
  float p_jitter = 0.8f;

  /// Camera motion: the background turns by up to 1 degree and moves by up to
  /// 1 % of its size.
  float p_affine = 0.3f;
};

/// Composes batches of a MattingDataset into the inputs and targets of a
/// matting network:
///
///   inputs fgr, bgr [N, H, W, 3] kByte   ->  src, bgr [N, 3, h, w] kFloat
///   target pha [N, H, W] kByte           ->  pha [N, 1, h, w] kFloat and
///                                            fgr [N, 3, h, w] kFloat
///
/// all in 0..1, where `src = fgr * pha + bgr * (1 - pha)`. Crops training
/// batches to a random size and augments them: shadow, foreground, noise, then
/// the background alone. Composites others unchanged.
///
/// Runs on the device of the batch without synchronizing with it. Random
/// numbers depend only on the run's seed, the epoch and the batch, so that a
/// resumed training repeats them.
///
/// \throws c10::ValueError for an option out of range, and, when it is called,
///         for any other batch.
BatchTransform matting_augment(const MattingAugmentOptions& options = {});

struct MattingDataOptions {
  /// Size and transforms of the images.
  MattingDatasetOptions dataset = {};
  /// Augmentation of a batch on the device.
  MattingAugmentOptions augment = {};
  /// Fraction of pairs, and of backgrounds, for validation, if the folders have
  /// no train and valid.
  double valid_pct = 0.2;
  /// Maximum number of validation samples, evenly spread; 0: all.
  int64_t valid_samples = 50;
  /// Seed of the split, the order and all augmentation.
  uint64_t seed = 42;
  int64_t batch_size = 8;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};
};

/// Creates the data for training background matting.
///
///   pairs/{train,valid}/{pha,fgr}/*, or pairs/{pha,fgr}/* split at random;
///   backgrounds/{train,valid}/*, or any folder of photographs, likewise.
///
///   auto data = matting_data("videomatte", "backgrounds", {.batch_size = 8});
///
/// Batches are those of `matting_augment`.
/// \throws DataError as `find_matting_files` and `check_matting_files`, and if
///         only one of the two folders has train and valid; c10::ValueError for
///         a bad option.
DataBunch matting_data(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds,
    const MattingDataOptions& options = {});

}  // namespace tern
