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
  /// Number of columns; 0: about as many as rows. Where each sample has a
  /// second image (batches with masks, results with boxes or points), a pair
  /// counts as one column. Results with masks always have 3 columns.
  int64_t columns = 0;
  /// Side of each image, in pixels.
  int64_t tile = 176;
};

/// Plots the first images of a batch as the model sees them, before
/// normalization, with their targets. Classes and numbers are in the caption;
/// boxes and points are drawn over the image; a mask is drawn over a second
/// copy of the image, with a legend of the classes. Pixels of a class without a
/// name keep their color. Like fastai's show_batch.
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

/// Plots images of a split with target and prediction. For classes, the
/// prediction is green if correct and red if wrong. For masks, each row
/// contains the image, the actual and the predicted mask, with a legend of the
/// classes. For boxes and points, the image with the targets is next to the
/// image with the predictions; boxes need a score of at least
/// OutputInfo::threshold. Pixels keep their color if their class is unknown to
/// the model or ignored by the loss. Like fastai's show_results.
///
/// \throws c10::ValueError if there are no samples or the inputs are not
///         images; IoError.
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
    double accuracy = 0;  // fraction predicted correctly; NaN if no pixels
    /// `2 |A and B| / (|A| + |B|)` for the predicted region A and the actual
    /// region B. NaN if both are empty, or if the loss ignores the class.
    double dice = 0;
    double iou = 0;  // `|A and B| / |A or B|`; NaN as for dice
  };

  std::vector<Row> classes;
  double accuracy = 0;  // fraction of all pixels
  // Means over the classes for which the value is not NaN.
  double mean_accuracy = 0, mean_dice = 0, mean_iou = 0;

  /// Formats a table with one line per class.
  std::string to_string() const;
};

/// Evaluates a segmentation model on a split and counts pixels per class.
/// Targets that are not among the model's classes (such as a void class) are
/// not counted.
///
///   fmt::print("{}", segmentation_report(learn).to_string());
///
/// \throws c10::ValueError if the outputs are not [N, C, H, W] with masks [N,
///         H, W], or if there is no such split.
SegmentationReport segmentation_report(
    Learner& learn,
    Split split = Split::valid);

}  // namespace tern
