#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <torch/types.h>

#include "tern/learner/metrics/average.h"

/// What metrics of classes count. Private to learner/metrics/.
namespace tern {

struct ClassScores {
  torch::Tensor scores;   // [M, C], kFloat or kDouble
  torch::Tensor targets;  // [M] kLong
};

/// \param pred    [N, C, ...] as for cross-entropy; the classes are in `axis`.
/// \param target  [N, ...] or [N, 1], integers or bools; or one-hot, of the shape
///                of `pred`.
ClassScores class_scores(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis = 1);

/// Whether `target` has whole numbers for each class of `pred` in `axis`. With
/// the classes second, three dimensions are [N, H, W], a mask of a binary
/// classifier.
bool is_one_hot(
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis);

/// Whether `pred` is one channel alone, or none: logits of a binary classifier.
bool is_binary(const torch::Tensor& pred, const torch::Tensor& target);

struct ClassNumbers {
  torch::Tensor pred, target;  // [M] kLong
  int64_t classes;
};

/// The likeliest class of every target; of a binary classifier's logits class 1
/// where they are > 0.
ClassNumbers class_numbers(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis = 1);

/// What is no class of the model, such as a void pixel's, counts nowhere.
torch::Tensor is_class(const torch::Tensor& targets, int64_t classes);

/// Of targets of several labels, 0 or 1 each: which are there, and which of them
/// are known. Others, such as -1 and NaN, are not known and count nowhere; what
/// lies between 0 and 1, as label smoothing makes it, is there above 0.5.
struct KnownLabels {
  torch::Tensor target, is_known;  // kBool; `target` is false where unknown
};
KnownLabels known_labels(const torch::Tensor& targets);

/// By class, or by label where a sample has several: [C] kDouble each.
struct ClassCounts {
  torch::Tensor hits, predicted, actual;
  /// 1, and 0 for the class that the loss ignores, of which the others are 0.
  torch::Tensor counted;
  bool has_ignored = false;

  /// Those of a label of many: none is ignored.
  static ClassCounts of_labels(
      const torch::Tensor& hits,
      const torch::Tensor& predicted,
      const torch::Tensor& actual);
  /// \param matrix  [C, C] kDouble: rows are true classes, columns predicted.
  static ClassCounts of_matrix(
      const torch::Tensor& matrix,
      int64_t ignore_index);
};
using CountsFormula = std::function<torch::Tensor(const ClassCounts&)>;

/// \param beta2  The square of beta: 0 gives precision, infinity recall.
CountsFormula
beta_formula(const std::string& name, double beta2, Average average);

/// Overlap over union.
/// \param spares_absent  A class that never comes up is no part of the mean;
///                       otherwise it counts as 0.
CountsFormula
jaccard_formula(const std::string& name, Average average, bool spares_absent);

/// 0 / 0 is 0, as in scikit-learn.
torch::Tensor ratio(const torch::Tensor& over, const torch::Tensor& under);

}  // namespace tern
