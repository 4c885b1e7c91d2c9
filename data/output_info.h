#pragma once

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
/// probabilities for cross-entropy, the plain numbers for a regression.
enum class Activation { none, softmax, sigmoid, exp };

/// Describes what an output of a model predicts.
struct OutputInfo {
  TargetKind kind = TargetKind::category;
  /// Names of the classes by index, or of the numbers. Empty: for the first
  /// output `DataBunch::classes`.
  std::vector<std::string> names = {};
  /// The probability above which one of several classes, or the second of two
  /// with one output, is predicted.
  double threshold = 0.5;
  /// Unset: that of the loss for the first output; for others softmax,
  /// sigmoid for several classes, none for numbers.
  std::optional<Activation> activation = {};
};

}  // namespace tern
