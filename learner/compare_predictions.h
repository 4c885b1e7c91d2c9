#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tern/learner/predictions.h"

namespace tern {

/// How much predictions differ from reference predictions of the same samples.
/// If the model has several outputs, the fields describe the first.
struct PredictionDifference {
  int64_t samples = 0;
  /// Fraction of equal labels: of samples with the same class or, if a sample
  /// can have several, the same classes; of pixels of masks with the same
  /// class; of boxes that match a box of the same class with an IoU of at least
  /// 0.5. Unset for numbers and points.
  std::optional<double> equal_labels = {};
  /// Indices of the samples with a different label, in ascending order.
  std::vector<int64_t> changed = {};
  /// Largest difference of two numbers of the outputs, such as probabilities;
  /// for boxes, of the scores of matching boxes, and of other boxes from 0. NaN
  /// if only one of two numbers is NaN.
  double largest_difference = 0;
  /// Norm of all differences relative to the norm of the reference's outputs.
  double relative_error = 0;
  /// The differences of each output, including the first. In these, `outputs`
  /// is empty.
  std::vector<PredictionDifference> outputs = {};

  /// A line for each output: "341 samples: 99.71% of the labels are equal;
  /// outputs differ by at most 0.0213, relative error 0.00391".
  std::string to_string() const;
};

/// Compares predictions of any kind, for example from a Predictor in bfloat16
/// with those of one in fp32.
/// \throws c10::ValueError if the numbers of predictions differ, or two
///         predictions have different kinds or sizes.
PredictionDifference compare_predictions(
    const std::vector<Prediction>& predictions,
    const std::vector<Prediction>& reference);

}  // namespace tern
