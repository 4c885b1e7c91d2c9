#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/metric.h"
#include "tern/learner/state_dict.h"

namespace tern {

// Object detection, measured by COCO's protocol. Values match pycocotools'
// COCOeval for boxes to 1e-9, except that a mean over no values is NaN where
// pycocotools returns -1.
//
// Detections are three tensors:
//   boxes   [N, D, 4] kFloat: left, upper, right and lower edge in pixels
//   scores  [N, D] kFloat, higher is more certain
//   labels  [N, D] kLong, classes from 0; -1: no detection
// Targets are two, three or five tensors:
//   boxes         [N, K, 4] kFloat
//   labels        [N, K] kLong; -1, anywhere in the row: no object
//   areas         [N, K] kFloat, area of the object's outline in pixels, which
//                 decides if it is small, medium or large; 0: the box's area
//   crowd_boxes   [N, C, 4] kFloat, regions with many objects of a class, in
//                 which no detection counts as wrong (COCO's `iscrowd`)
//   crowd_labels  [N, C] kLong; -1: none
// kDouble is accepted in place of kFloat, and D, K and C may differ between
// batches. A box has no area and matches nothing if its right edge is not right
// of its left edge, its lower edge is not below its upper edge, or one of its
// numbers is NaN. A NaN score makes all values NaN. As for every metric, the
// value of a Metric is also NaN if the model's first output contains a NaN.
//
// COCO's protocol orders equal scores by image. Here, images are ordered by
// rank, then by call of `add`, then by row in the batch.

/// Object sizes: up to 32 x 32 pixels, up to 96 x 96, or larger. An object
/// exactly at a limit belongs to both sizes.
enum class BoxArea { all, small, medium, large };

/// Average precisions and recalls over a dataset. A value is NaN if the dataset
/// has none of the objects that it covers.
struct BoxEvaluationResult {
  /// Mean of the average precisions over all classes that have objects and over
  /// the IoU thresholds 0.5, 0.55, ... 0.95, with at most 100 detections per
  /// class and image.
  double map = 0;
  /// At IoU threshold 0.5 or 0.75 only.
  double map_50 = 0, map_75 = 0;
  /// For objects of one size. Detections of other sizes that match no object
  /// are left out.
  double map_small = 0, map_medium = 0, map_large = 0;
  /// Mean fraction of objects that are found, with at most 1, 10 and 100
  /// detections per class and image.
  double mar_1 = 0, mar_10 = 0, mar_100 = 0;
  /// For objects of one size, with 100 detections.
  double mar_small = 0, mar_medium = 0, mar_large = 0;

  /// Class names by label; the labels as numbers if the options have no names.
  std::vector<std::string> classes;
  /// Per class, by label.
  std::vector<double> map_per_class, map_50_per_class, map_75_per_class;
  std::vector<double> mar_100_per_class;
  /// Number of objects by label, without crowds.
  std::vector<int64_t> objects_per_class;
  int64_t images = 0;

  /// Precision at each recall, if `keep_precision` is set: [T, R, K, A, M]
  /// kDouble, for IoU thresholds 0.5 ... 0.95, recalls 0, 0.01, ... 1, classes,
  /// areas in the order of BoxArea, and 1, 10 and 100 detections.
  torch::Tensor precision;
  /// [T, K, A, M] kDouble, with the same dimensions.
  torch::Tensor recall;

  /// Returns COCO's twelve lines and a table of the classes that have objects.
  std::string to_string() const;
};

struct BoxEvaluationOptions {
  /// Class names by label; a label without a name is an error. Empty: any
  /// labels.
  std::vector<std::string> classes = {};
  /// Fill the result's `precision`, which needs 97 kB per class.
  bool keep_precision = false;
};

/// Evaluates the detections of a dataset, without a Learner.
///
///   BoxEvaluation evaluation({.classes = {"cat", "dog"}});
///   evaluation.add(detections, targets);
///   fmt::print("{}", evaluation.result().to_string());
class BoxEvaluation {
 public:
  explicit BoxEvaluation(BoxEvaluationOptions options = {});

  /// Adds a batch of images, without synchronizing with the device.
  /// \throws c10::ValueError unless the tensors have the shapes and dtypes
  ///         listed at the top of this header.
  void add(const Tensors& detections, const Tensors& targets);

  /// Evaluates all images since the last `reset`, in double on the CPU.
  /// \throws c10::ValueError if a label has no name in `classes`, or is above
  ///         99,999.
  BoxEvaluationResult result() const;

  /// Removes all images.
  void reset() { rows_.clear(); }

  /// Combines the images of all ranks, in the order of ranks. All ranks must
  /// call it. Synchronizes with the device.
  void sync(const AllReduce& all_reduce);

  /// Returns all images added so far, to continue later. Synchronizes with the
  /// device.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  BoxEvaluationOptions options_;
  // [n, 7] each, on the device of the batches. mean_average_precision.cpp
  // defines the columns.
  Tensors rows_;
};

/// Decodes a model's outputs into detections as described above.
using DecodeBoxes = std::function<Tensors(const Tensors& outputs)>;

struct MeanAveragePrecisionOptions {
  /// Lowest IoU at which a detection matches an object, in 0..1. 0: the mean
  /// over 0.5, 0.55, ... 0.95.
  double iou = 0;
  BoxArea area = BoxArea::all;
  /// Empty: a Learner decodes the outputs by `data.outputs[0].detection`, as
  /// for `get_preds`; outputs that are already detections are unchanged.
  DecodeBoxes decode = {};
};

/// Mean average precision. Its name is "map", "map_50" with `iou` 0.5, or
/// "map_small" for small objects. Keeps the detections of the whole dataset on
/// the device until the value is computed, which synchronizes with the device.
/// \throws c10::ValueError if `iou` is outside 0..1; from `update`, unless
///         detections and targets have the shapes and dtypes listed at the top
///         of this header.
Metric mean_average_precision(const MeanAveragePrecisionOptions& options = {});

struct MeanAverageRecallOptions {
  /// Number of detections with the highest scores to use per class and image;
  /// >= 1.
  int64_t max_detections = 100;
  /// As for mean_average_precision.
  double iou = 0;
  BoxArea area = BoxArea::all;
  DecodeBoxes decode = {};
};

/// Mean fraction of objects that are found. Its name is "mar_100", "mar_100_50"
/// with `iou` 0.5, or "mar_100_small" for small objects. Otherwise as
/// mean_average_precision.
Metric mean_average_recall(const MeanAverageRecallOptions& options = {});

}  // namespace tern
