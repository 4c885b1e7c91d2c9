#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tern/learner/predictions.h"

namespace tern {

/// How much predictions differ from reference predictions of the same samples.
struct PredictionDifference {
  int64_t samples = 0;
  /// Fraction of equal answers: samples with the same class or, if a sample can
  /// have several, the same classes; pixels of masks with the same class; boxes
  /// that have a partner of the same class with an IoU of at least 0.5. Unset
  /// for numbers and points.
  std::optional<double> same = {};
  /// Indices of the samples in which an answer differs, in ascending order.
  std::vector<int64_t> changed = {};
  /// Largest difference of two outputs, such as probabilities or numbers. For
  /// boxes, of the scores of partners. NaN if only one of them is NaN.
  double largest_difference = 0;
  /// Norm of the differences of all outputs, relative to the norm of the
  /// reference's outputs.
  double relative_error = 0;

  /// "341 samples: 99.7% have the same class; outputs differ by at most 0.0213,
  /// relative error 0.00391"
  std::string to_string() const;
};

/// Compares predictions of any kind, for example from a Predictor in bfloat16
/// with those of one in fp32. If a model has several outputs, all are compared.
/// \throws c10::ValueError if the numbers of predictions differ, or two
///         predictions have different kinds or sizes.
PredictionDifference compare_predictions(
    const std::vector<Prediction>& predictions,
    const std::vector<Prediction>& reference);

}  // namespace tern
