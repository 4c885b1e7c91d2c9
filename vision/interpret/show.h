#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/learner.h"

namespace tern {

struct ShowOptions {
  /// Maximum number of images.
  int64_t count = 9;
  /// 0: about as many columns as rows. Of samples with masks, boxes or points,
  /// each of which has an image for its target too; results with masks always
  /// have 3.
  int64_t columns = 0;
  /// Side of each image, in pixels.
  int64_t tile = 176;
};

/// Plots the first images of a batch as the model sees them, before
/// normalization, with their targets: classes, numbers, boxes and points over
/// the image, or beside it the image with its mask, and a legend of the classes;
/// pixels of a class without a name keep their color. fastai's show_batch.
///
///   show_batch(data, "batch.png");
///
/// \param file  A PNG file, which is replaced.
/// \throws c10::ValueError if there is no batch or its inputs are not images;
///         IoError.
void show_batch(
    const DataBunch& data,
    const std::filesystem::path& file,
    Split split = Split::train,
    const ShowOptions& options = {});

/// Plots images of a split with target and prediction, green if correct and red
/// if wrong; for masks a row each: the image, its actual mask and the predicted
/// one, with a legend of the classes; for boxes and points the image with the
/// actual ones beside the same with the predicted ones, of boxes those with a
/// score of at least OutputInfo::threshold. Pixels of other classes than the model's,
/// and of the class that the loss ignores, keep their color. fastai's
/// show_results.
///
/// \throws c10::ValueError if there is no sample or the inputs are not images;
///         IoError.
void show_results(
    Learner& learn,
    const std::filesystem::path& file,
    Split split = Split::valid,
    const ShowOptions& options = {});

/// Per-class accuracy, Dice score and IoU of a segmentation.
struct SegmentationReport {
  struct Row {
    std::string name;
    int64_t pixels = 0;   // pixels of the class
    double accuracy = 0;  // fraction predicted correctly; NaN without pixels
    /// `2 |A and B| / (|A| + |B|)` of the predicted and the actual region; NaN
    /// if both are empty, or the loss ignores the class.
    double dice = 0;
    double iou = 0;  // `|A and B| / |A or B|` of these regions; NaN likewise
  };

  std::vector<Row> classes;
  double accuracy = 0;  // fraction of all pixels
  // Over the classes that occur.
  double mean_accuracy = 0, mean_dice = 0, mean_iou = 0;

  /// A table with one line per class.
  std::string to_string() const;
};

/// Evaluates the model on a split and counts pixels. Targets that are not among
/// the model's classes (a void class) are not counted.
///
///   fmt::print("{}", segmentation_report(learn).to_string());
///
/// \throws c10::ValueError if the outputs are not [N, C, H, W] for masks [N, H,
///         W], or there is no such split.
SegmentationReport segmentation_report(
    Learner& learn,
    Split split = Split::valid);

}  // namespace tern
