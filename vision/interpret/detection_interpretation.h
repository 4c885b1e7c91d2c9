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
#include "tern/vision/interpret/interpretation.h"
#include "tern/vision/interpret/picture_grid.h"

namespace tern {

struct DetectionInterpretationOptions {
  /// IoU from which on a detection is at the place of an object: above 0, at
  /// most 1.
  double iou = 0.5;
  /// Detections with a lower score are left out, as they are not shown either.
  /// Unset: `data.outputs[0].threshold`.
  std::optional<double> score = {};
};

/// Outcome of the objects and detections of a class or an image.
struct DetectionCounts {
  /// Objects, of which each is found, confused or missed; without crowds.
  int64_t objects = 0;
  /// Objects that are detected as what they are.
  int64_t found = 0;
  /// Objects that are detected as another class.
  int64_t confused = 0;
  /// Objects that are not detected.
  int64_t missed = 0;
  /// Detections where no object is, or one that is detected already.
  int64_t false_boxes = 0;

  /// Missed, false and confused ones.
  int64_t errors() const { return missed + false_boxes + confused; }
};

/// An image and its counts.
struct ImageErrors {
  int64_t index = 0;  // in the dataset
  DetectionCounts counts;
};

/// What a detector finds, misses, confuses and makes up in a whole split. The
/// model runs once, in `from`.
///
///   auto interp = DetectionInterpretation::from(learn);
///   fmt::print("{}", interp.to_string());
///   interp.plot_worst("worst.png");
///
/// In each image detections take objects, the highest score first: each the one
/// that is free and that it overlaps most, by at least `iou`, one of its own
/// class before one of another. What takes none is a false box, unless a crowd
/// region of its class has at least a share of `iou` of it; then it counts
/// nowhere.
class DetectionInterpretation final {
 public:
  /// Predicts in the dataset's order, without augmentation.
  /// \throws c10::ValueError if the data have no boxes or the outputs are not
  ///         detections as of learner/metrics/mean_average_precision.h, a score
  ///         is NaN, a label is no class, there is no sample, or an option is
  ///         out of range.
  static DetectionInterpretation from(
      Learner& learn,
      Split split = Split::valid,
      const DetectionInterpretationOptions& options = {}) {
    return {learn, split, options};
  }

  /// Number of images.
  int64_t size() const { return std::ssize(images_); }
  /// Names of the C classes; their numbers where the data have none.
  const std::vector<std::string>& classes() const { return classes_; }
  /// Of each row of the predictions, the index of its image in the dataset.
  const std::vector<int64_t>& indices() const { return answers_.indices; }

  /// Counts by class: objects, found, confused and missed ones by the object's
  /// class, false boxes by the detection's.
  const std::vector<DetectionCounts>& counts() const { return counts_; }
  /// Returns the sum over all classes.
  DetectionCounts total() const;

  /// [C + 1, C + 1] kLong: rows are the actual classes, columns the predicted
  /// ones; the last row has the false boxes, the last column the missed objects.
  const torch::Tensor& confusion_matrix() const { return matrix_; }

  /// Returns the pairs of different classes with at least `min_count` objects,
  /// most frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const;

  /// Returns the images with the most errors, most first.
  /// \param k  Number of images; 0: all that have an error.
  std::vector<ImageErrors> worst_images(int64_t k = 0) const;

  /// Evaluates all detections, those with a low score too, by COCO's protocol.
  BoxEvaluationResult evaluation() const;

  /// A table with one line per class, and the sum below.
  std::string to_string() const;

  /// Plots the images of `worst_images`: found objects, false boxes and
  /// confused objects as they are detected, with class and score, and missed
  /// objects and crowd regions as they are annotated.
  /// \param file  A PNG file, which is replaced.
  /// \param tile  Side of each image, in pixels.
  /// \throws c10::ValueError if no image has an error, or the inputs are not
  ///         images; IoError.
  void plot_worst(
      const std::filesystem::path& file,
      int64_t k = 9,
      int64_t tile = 280) const;
  /// Returns that plot as [H, W, 3] kByte.
  torch::Tensor draw_worst(int64_t k = 9, int64_t tile = 280) const;

  /// Plots the confusion matrix; with numbers in the cells up to 60 classes.
  /// \param file  A PNG or, by its suffix, an SVG.
  /// \param normalize  Plots fractions of the actual class instead of counts.
  /// \throws c10::ValueError for another suffix; IoError.
  void plot_confusion_matrix(
      const std::filesystem::path& file,
      bool normalize = false) const;

 private:
  DetectionInterpretation(
      Learner& learn,
      Split split,
      const DetectionInterpretationOptions& options);

  /// Of one image: what each detection took.
  struct ImageMatches {
    /// Of each detection the row of the object; kNone: no object, kIgnored: it
    /// counts nowhere.
    std::vector<int64_t> object_of;
    DetectionCounts counts;
  };
  static constexpr int64_t kNone = -1, kIgnored = -2;

  ImageMatches match(int64_t row) const;
  void count_image(int64_t row);
  /// What is drawn over an image.
  std::vector<MarkedBox> marks_of(int64_t row) const;
  /// Rows of `worst_images`.
  std::vector<int64_t> worst_rows(int64_t k) const;

  DataBunch data_;
  std::shared_ptr<const Dataset> dataset_;
  double iou_, score_;
  Predictions answers_;
  std::vector<std::string> classes_;
  std::vector<ImageMatches> images_;
  std::vector<DetectionCounts> counts_;
  torch::Tensor matrix_;
};

}  // namespace tern
