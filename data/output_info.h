#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tern {

/// Target type: how labels are interpreted, and what an output predicts.
enum class TargetKind {
  /// One class per sample: [N] kLong.
  category,
  /// Any number of classes per sample: [N, classes] kFloat, 0 or 1.
  multi_category,
  /// One or k numbers per sample: [N] or [N, k] kFloat.
  number,
  /// The class of each pixel: [N, H, W] kLong. For image files, masks are PNGs
  /// of class indices.
  mask,
  /// Objects in an image with their classes: boxes [N, K, 4] kFloat, as x1, y1,
  /// x2, y2 in pixels, and labels [N, K] kLong, where -1 means no box.
  boxes,
  /// Points of an image: [N, P, 2] kFloat, as x, y in pixels, and their
  /// visibility, [N, P] kBool.
  points,
};

/// The conversion of raw outputs to readable predictions. Each loss determines
/// one: probabilities for cross-entropy, unchanged numbers for regression, and
/// for a detector boxes, scores and labels (`decode_detections`), which replace
/// its four outputs.
enum class Activation { none, softmax, sigmoid, exp, detections };

/// How a detector's outputs become boxes, with torchvision's names and
/// defaults.
struct DetectionOptions {
  /// Keeps detections with a larger score.
  double score_thresh = 0.05;
  /// Maximum number of candidates per level; those with the highest scores are
  /// kept.
  int64_t topk_candidates = 1000;
  /// Threshold of non-maximum suppression within each class.
  double nms_thresh = 0.5;
  /// Maximum number of detections per image.
  int64_t detections_per_img = 300;
  /// Number of anchors per level, in the order of the outputs. Empty: computed
  /// from the anchors, since each level begins with the anchors centered at (0,
  /// 0); this synchronizes with the device.
  std::vector<int64_t> anchors_per_level = {};
  /// Number of levels, if `anchors_per_level` is empty.
  int64_t levels = 5;
};

/// Describes what an output of a model predicts.
struct OutputInfo {
  TargetKind kind = TargetKind::category;
  /// Names of the classes by index, or of the numbers. Empty:
  /// `DataBunch::classes` for the first output.
  std::vector<std::string> names = {};
  /// Probability above which a class is predicted, if a sample can have several
  /// classes; or above which the second of two classes is predicted, if the
  /// output is one number. Also the minimum score of a box that is shown.
  double threshold = 0.5;
  /// Unset: the loss's activation for the first output. For other outputs it
  /// depends on `kind`: softmax for classes, sigmoid for multi-label targets,
  /// none for regression.
  std::optional<Activation> activation = {};
  /// Used with Activation::detections.
  DetectionOptions detection = {};
};

}  // namespace tern
