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

// Object detection, measured by COCO's protocol: values are those of
// pycocotools' COCOeval for boxes, to 1e-9, except that a mean over nothing is
// NaN where pycocotools has -1.
//
// Detections are three tensors:
//   boxes   [N, D, 4] kFloat: left, upper, right and lower edge in pixels
//   scores  [N, D] kFloat, higher is more certain
//   labels  [N, D] kLong, classes from 0; -1: no detection
// Targets are two, three or five tensors:
//   boxes         [N, K, 4] kFloat
//   labels        [N, K] kLong; -1, anywhere in the row: no object
//   areas         [N, K] kFloat, pixels of the object's outline, by which small
//                 objects are told from large ones; 0: that of the box
//   crowd_boxes   [N, C, 4] kFloat, regions with many objects of a class, in
//                 which no detection counts as wrong (COCO's `iscrowd`)
//   crowd_labels  [N, C] kLong; -1: none
// kDouble is taken where kFloat is named, and D, K and C may differ between
// batches. A box whose right edge is not right of its left one, or of which a
// number is NaN, has no area and matches nothing. With a NaN among the scores
// all values are NaN; those of a Metric, as of any, with one in the model's first
// output.
//
// Equal scores, of which COCO's protocol counts the earlier image first, are
// counted in the order of `add`, then of rows; over several processes in the
// order of ranks.

/// Objects of some size: up to 32 x 32 pixels, up to 96 x 96, or larger; one
/// that is just as large as a limit is in both.
enum class BoxArea { all, small, medium, large };

/// Average precisions and recalls of a set; NaN where it has no such object.
struct BoxEvaluationResult {
  /// Mean of the average precisions of all classes that have objects, and of
  /// the IoU thresholds 0.5, 0.55, ... 0.95; with 100 detections a class and
  /// image at most.
  double map = 0;
  /// With the IoU threshold 0.5 or 0.75 alone.
  double map_50 = 0, map_75 = 0;
  /// Of objects of one size; detections of other sizes that match none are left
  /// out.
  double map_small = 0, map_medium = 0, map_large = 0;
  /// Mean share of objects that are found, with 1, 10 and 100 detections a
  /// class and image at most.
  double mar_1 = 0, mar_10 = 0, mar_100 = 0;
  /// With 100 detections, of objects of one size.
  double mar_small = 0, mar_medium = 0, mar_large = 0;

  /// Names of the classes by label; their numbers where the options have none.
  std::vector<std::string> classes;
  /// By label.
  std::vector<double> map_per_class, map_50_per_class, map_75_per_class;
  std::vector<double> mar_100_per_class;
  /// Objects by label, without crowds.
  std::vector<int64_t> objects_per_class;
  int64_t images = 0;

  /// Precision at each recall, if the options ask for it: [T, R, K, A, M]
  /// kDouble, of IoU thresholds 0.5 ... 0.95, recalls 0, 0.01, ... 1, classes,
  /// areas in the order of BoxArea, and 1, 10 and 100 detections.
  torch::Tensor precision;
  /// [T, K, A, M] kDouble, as above.
  torch::Tensor recall;

  /// Returns COCO's twelve lines and a table of the classes that have objects.
  std::string to_string() const;
};

struct BoxEvaluationOptions {
  /// Names of the classes by label; a label beyond them is refused.
  std::vector<std::string> classes = {};
  /// Fills `precision` of the result, which takes 97 kB a class.
  bool keep_precision = false;
};

/// Evaluates detections of a whole set, without a Learner.
///
///   BoxEvaluation evaluation({.classes = {"cat", "dog"}});
///   evaluation.add(detections, targets);
///   fmt::print("{}", evaluation.result().to_string());
class BoxEvaluation {
 public:
  explicit BoxEvaluation(BoxEvaluationOptions options = {});

  /// Adds a batch of images, without waiting for the device.
  /// \throws c10::ValueError unless the tensors are what the top of this header
  ///         says.
  void add(const Tensors& detections, const Tensors& targets);

  /// Evaluates all images since the last `reset`, in double on the CPU.
  /// \throws c10::ValueError if a label is beyond the names of the classes, or
  ///         above 99,999.
  BoxEvaluationResult result() const;

  /// Forgets every image.
  void reset() { rows_.clear(); }

  /// Makes this the evaluation of all ranks' images, in their order; all ranks
  /// call it. Waits for the device.
  void sync(const AllReduce& all_reduce);

  /// Returns what was added, to continue from later. Waits for the device.
  StateDict state_dict() const;
  void load_state_dict(const StateDict& state);

 private:
  BoxEvaluationOptions options_;
  // [n, 7] each, on the device of the batches; mean_average_precision.cpp has
  // the columns.
  Tensors rows_;
};

/// Returns the detections, as above, that a model's outputs stand for.
using DecodeBoxes = std::function<Tensors(const Tensors& outputs)>;

struct MeanAveragePrecisionOptions {
  /// The IoU from which a detection matches, in 0..1; 0: the mean over 0.5,
  /// 0.55, ... 0.95.
  double iou = 0;
  BoxArea area = BoxArea::all;
  /// Empty: a Learner decodes the outputs as for `get_preds`, by
  /// `data.outputs[0].detection`; outputs that are detections stay as they are.
  DecodeBoxes decode = {};
};

/// Mean average precision: "map", or "map_50" with `iou` 0.5, "map_small" of
/// small objects. It keeps the detections of the whole set on the device until
/// it is computed, which waits for it.
/// \throws c10::ValueError if `iou` is outside 0..1; at an update, unless
///         detections and targets are what the top of this header says.
Metric mean_average_precision(const MeanAveragePrecisionOptions& options = {});

struct MeanAverageRecallOptions {
  /// Of each class and image, the highest scores; >= 1.
  int64_t max_detections = 100;
  /// As for mean_average_precision.
  double iou = 0;
  BoxArea area = BoxArea::all;
  DecodeBoxes decode = {};
};

/// Mean share of objects that are found: "mar_100", "mar_100_50" with `iou` 0.5,
/// "mar_100_small" of small objects; else as mean_average_precision.
Metric mean_average_recall(const MeanAverageRecallOptions& options = {});

}  // namespace tern
