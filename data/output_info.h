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
  /// The class of each pixel, for images from a PNG of class indices: [N, H, W]
  /// kLong.
  mask,
  /// Objects in an image with their classes: boxes [N, K, 4] kFloat, as x1, y1,
  /// x2, y2 in pixels, and labels [N, K] kLong, of which -1 is no box.
  boxes,
  /// Points of an image: [N, P, 2] kFloat, as x, y in pixels, and whether each is
  /// visible, [N, P] kBool.
  points,
};

/// What turns raw outputs into what a person reads, and belongs to a loss:
/// probabilities for cross-entropy, the plain numbers for a regression, and for
/// a detector boxes, scores and labels (`decode_detections`), which take the place
/// of its four outputs.
enum class Activation { none, softmax, sigmoid, exp, detections };

/// How a detector's outputs become boxes: torchvision's names and defaults.
struct DetectionOptions {
  /// Detections have larger scores.
  double score_thresh = 0.05;
  /// Candidates of each level, those with the largest scores.
  int64_t topk_candidates = 1000;
  /// Threshold of non-maximum suppression within each class.
  double nms_thresh = 0.5;
  /// Detections of an image, at most.
  int64_t detections_per_img = 300;
  /// Number of anchors of each level, in the order of the outputs. Empty:
  /// computed from the anchors, since each level begins with those centered at
  /// (0, 0); this synchronizes with the device.
  std::vector<int64_t> anchors_per_level = {};
  /// Number of levels, if `anchors_per_level` is empty.
  int64_t levels = 5;
};

/// Describes what an output of a model predicts.
struct OutputInfo {
  TargetKind kind = TargetKind::category;
  /// Names of the classes by index, or of the numbers. Empty: for the first
  /// output `DataBunch::classes`.
  std::vector<std::string> names = {};
  /// The probability above which one of several classes, or the second of two
  /// with one output, is predicted; the least score of a box that is shown.
  double threshold = 0.5;
  /// Unset: that of the loss for the first output; for others softmax,
  /// sigmoid for several classes, none for numbers.
  std::optional<Activation> activation = {};
  /// With Activation::detections.
  DetectionOptions detection = {};
};

}  // namespace tern
