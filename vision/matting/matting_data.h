#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tern/data/data_bunch.h"
#include "tern/vision/matting/matting_augment.h"
#include "tern/vision/matting/matting_dataset.h"

namespace tern {

struct MattingDataOptions {
  /// Size and transforms of the pictures.
  MattingDatasetOptions dataset = {};
  /// What becomes of a batch on the device.
  MattingAugmentOptions augment = {};
  /// The share of pairs, and of backgrounds, to check with, where a folder has
  /// no train and valid in it.
  double valid_pct = 0.2;
  /// The most samples to check with, spread over all; 0: all.
  int64_t valid_samples = 50;
  /// Key of the split, of the order and of all augmentation.
  uint64_t seed = 42;
  int64_t batch_size = 8;
  /// See DataLoaderOptions.
  int64_t workers = -1;
  /// Unset: `DataBunch::default_device()`.
  std::optional<torch::Device> device = {};
};

/// The data of a training in background matting.
///
///   pairs/{train,valid}/{pha,fgr}/*, or pairs/{pha,fgr}/* split at random;
///   backgrounds/{train,valid}/*, or any folder of photographs, likewise.
///
///   auto data = matting_data("videomatte", "backgrounds", {.batch_size = 8});
///
/// Batches are as `matting_augment` makes them, after the data set's.
/// \throws DataError as `find_matting_files` and `check_matting_files`, and
///         when only one of the two folders has train and valid;
///         c10::ValueError for a bad option.
DataBunch matting_data(
    const std::filesystem::path& pairs,
    const std::filesystem::path& backgrounds,
    const MattingDataOptions& options = {});

}  // namespace tern
