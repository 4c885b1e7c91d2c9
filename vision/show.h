#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/learner.h"

namespace tern {

struct ShowOptions {
  /// Pictures; fewer where there are fewer.
  int64_t count = 9;
  /// 0: about as many as rows.
  int64_t columns = 0;
  /// Pixels of a side of each picture.
  int64_t tile = 176;
};

/// Draws the first images of a batch, as the model gets them but for the
/// normalisation, with their targets below: class, classes, numbers, or the
/// mask over the image. fastai's show_batch.
///
///   show_batch(data, "batch.png");
///
/// \param file  A PNG; replaced.
/// \throws c10::ValueError if there is no batch or its inputs are no images;
///         IoError if the file cannot be written.
void show_batch(
    const DataBunch& data,
    const std::filesystem::path& file,
    Split split = Split::train,
    const ShowOptions& options = {});

/// Draws the first images of a split with target and prediction below, what is
/// right in green and what is wrong in red; of masks the target's picture and
/// the prediction's, side by side. fastai's show_results.
void show_results(
    Learner& learn,
    const std::filesystem::path& file,
    Split split = Split::valid,
    const ShowOptions& options = {});

struct ShowMasksOptions {
  /// The first so many images of the split.
  int64_t count = 4;
  Split split = Split::valid;
};

/// Draws images, what they show in truth and what the model sees, side by side,
/// a row for each, with the colours' names below. Pixels that are none of the
/// model's classes stay as they are.
///
/// \param file  A PNG, replaced.
/// \throws c10::ValueError if the split's data set gives no images [N, H, W, 3]
///         kByte with masks [N, H, W], or it has none; IoError.
void show_masks(
    Learner& learn,
    const std::filesystem::path& file,
    const ShowMasksOptions& options = {});

}  // namespace tern
