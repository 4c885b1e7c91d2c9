#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/mean_average_precision.h"
#include "tern/vision/interpret/image_grid.h"
#include "tern/vision/interpret/interpretation.h"

namespace tern {

struct DetectionInterpretationOptions {
  /// Minimum IoU at which a detection matches an object: above 0, at most 1.
  double iou = 0.5;
  /// Ignores detections with a lower score, as plots do. If not set, uses
  /// `data.outputs[0].threshold`.
  std::optional<double> score = {};
};

/// Counts of objects and detections, for a class or an image.
struct DetectionCounts {
  /// Objects, excluding crowd regions. Each is found, confused or missed.
  int64_t objects = 0;
  /// Objects that are detected with the right class.
  int64_t found = 0;
  /// Objects that are detected with another class.
  int64_t confused = 0;
  /// Objects that are not detected.
  int64_t missed = 0;
  /// Detections that match no object, or only an object that another detection
  /// has already matched.
  int64_t false_positives = 0;

  /// Returns the total number of missed objects, false positives and confused
  /// objects.
  int64_t errors() const { return missed + false_positives + confused; }
};

/// An image and its counts.
struct ImageErrors {
  int64_t index = 0;  // index in the dataset
  DetectionCounts counts;
};

/// Shows which objects of a split a detector finds, misses and confuses, and
/// where it detects objects that do not exist. The model runs only once, in
/// `from`.
///
///   auto interp = DetectionInterpretation::from(learn);
///   fmt::print("{}", interp.to_string());
///   interp.plot_worst("worst.png");
///
/// Detections are matched to the objects of each image in order of decreasing
/// score. A detection is matched to the free object with the largest IoU of at
/// least `iou`; objects of its class have priority over others. A detection
/// without a match is a false positive. It is ignored instead if at least the
/// fraction `iou` of its area is within a crowd region of its class.
class DetectionInterpretation final {
 public:
  /// Evaluates a split in the order of the dataset, without augmentation.
  /// \throws c10::ValueError if the data has no boxes or the outputs are not
  ///         detections as described in
  ///         learner/metrics/mean_average_precision.h, if a score is NaN or a
  ///         label is not a class, if there are no samples, or if an option is
  ///         out of range.
  static DetectionInterpretation from(
      Learner& learn,
      Split split = Split::valid,
      const DetectionInterpretationOptions& options = {}) {
    return {learn, split, options};
  }

  /// Number of images.
  int64_t size() const { return std::ssize(images_); }
  /// Names of the C classes, or their numbers if the data has no names.
  const std::vector<std::string>& classes() const { return classes_; }
  /// For each row of the predictions, the index of its image in the dataset.
  const std::vector<int64_t>& indices() const { return predictions_.indices; }

  /// Counts per class. An object counts for its own class, a false positive for
  /// the class of the detection.
  const std::vector<DetectionCounts>& counts() const { return counts_; }
  /// Returns the sum over all classes.
  DetectionCounts total() const;

  /// [C + 1, C + 1] kLong: rows are the actual classes, columns the predicted
  /// classes. The last row contains the false positives, the last column the
  /// missed objects.
  const torch::Tensor& confusion_matrix() const { return matrix_; }

  /// Returns the pairs of different classes with at least `min_count` confused
  /// objects, most frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const;

  /// Returns the images with errors, in descending order of the number of
  /// errors.
  /// \param k  Number of images; 0: all images with an error.
  std::vector<ImageErrors> worst_images(int64_t k = 0) const;

  /// Evaluates all detections, including detections with low scores, by COCO's
  /// protocol.
  BoxEvaluationResult evaluation() const;

  /// Formats a table with one line per class, followed by the total.
  std::string to_string() const;

  /// Plots the images of `worst_images`. Found objects, confused objects and
  /// false positives are drawn as detected, with class and score; missed
  /// objects and crowd regions are drawn as annotated.
  /// \param file  A PNG file, which is replaced.
  /// \param tile  Side of each image, in pixels.
  /// \throws c10::ValueError if no image has an error, or the inputs are not
  ///         images; IoError.
  void plot_worst(
      const std::filesystem::path& file,
      int64_t k = 9,
      int64_t tile = 280) const;
  /// Returns the same plot as [H, W, 3] kByte.
  torch::Tensor draw_worst(int64_t k = 9, int64_t tile = 280) const;

  /// Plots the confusion matrix. Cells show numbers for up to 60 classes.
  /// \param file  PNG or SVG, depending on the suffix.
  /// \param normalize  Plots fractions of the actual class instead of counts.
  /// \throws c10::ValueError for any other suffix; IoError.
  void plot_confusion_matrix(
      const std::filesystem::path& file,
      bool normalize = false) const;

 private:
  DetectionInterpretation(
      Learner& learn,
      Split split,
      const DetectionInterpretationOptions& options);

  struct ImageMatches {
    /// For each detection, the row of its object; kNone: no object, kIgnored:
    /// not counted.
    std::vector<int64_t> object_of;
    DetectionCounts counts;
  };
  static constexpr int64_t kNone = -1, kIgnored = -2;

  ImageMatches match(int64_t row) const;
  void count_image(int64_t row);
  /// Boxes to draw over an image.
  std::vector<MarkedBox> marks_of(int64_t row) const;
  /// Rows of `worst_images` in the predictions.
  std::vector<int64_t> worst_rows(int64_t k) const;

  DataBunch data_;
  std::shared_ptr<const Dataset> dataset_;
  double iou_, score_;
  Predictions predictions_;
  std::vector<std::string> classes_;
  std::vector<ImageMatches> images_;
  std::vector<DetectionCounts> counts_;
  torch::Tensor matrix_;
};

}  // namespace tern
