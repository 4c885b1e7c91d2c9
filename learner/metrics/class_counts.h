#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <torch/types.h>

#include "tern/learner/metrics/average.h"

/// Counts that the metrics of classifiers share. Private to learner/metrics/.
namespace tern {

struct ClassScores {
  torch::Tensor scores;   // [M, C], kFloat or kDouble
  torch::Tensor targets;  // [M] kLong
};

/// Flattens scores and targets to one row per sample or pixel.
/// \param pred    [N, C, ...] as for cross-entropy; `axis` holds the classes.
/// \param target  [N, ...] or [N, 1], integers or bools; or one-hot, with the
///                shape of `pred`.
ClassScores class_scores(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis = 1);

/// True if `target` has an integer for each class of `pred` along `axis`. With
/// the classes in dimension 1, a three-dimensional target is [N, H, W], the
/// mask of a binary classifier, and not one-hot.
bool is_one_hot(
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis);

/// True if `pred` has one channel or no channel dimension: logits of a binary
/// classifier.
bool is_binary(const torch::Tensor& pred, const torch::Tensor& target);

struct ClassNumbers {
  torch::Tensor pred, target;  // [M] kLong
  int64_t classes;
};

/// Returns the most likely class of every sample. For logits of a binary
/// classifier it is class 1 where they are > 0.
ClassNumbers class_numbers(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis = 1);

/// True where a target is a class of the model. Other targets, such as void
/// pixels, are not counted.
torch::Tensor is_class(const torch::Tensor& targets, int64_t classes);

/// Multi-label targets: whether a sample has each label, and whether this is
/// known. Values from 0 to 1 are known, and a sample has a label if the value
/// is above 0.5, so that targets with label smoothing work too. Other values,
/// such as -1 and NaN, are unknown and not counted.
struct KnownLabels {
  torch::Tensor target, is_known;  // kBool; `target` is false where unknown
};
KnownLabels known_labels(const torch::Tensor& targets);

/// Counts per class, or per label for multi-label targets: [C] kDouble each.
struct ClassCounts {
  torch::Tensor hits, predicted, actual;
  /// 1; 0 for the class that the loss ignores, whose other counts are 0.
  torch::Tensor counted;
  bool has_ignored = false;

  /// Returns counts of labels, none of which is ignored.
  static ClassCounts of_labels(
      const torch::Tensor& hits,
      const torch::Tensor& predicted,
      const torch::Tensor& actual);
  /// \param matrix  [C, C] kDouble: rows are true classes, columns predicted
  ///                classes.
  static ClassCounts of_matrix(
      const torch::Tensor& matrix,
      int64_t ignore_index);
};
using CountsFormula = std::function<torch::Tensor(const ClassCounts&)>;

/// \param beta2  The square of beta: 0 gives precision, infinity recall.
CountsFormula
beta_formula(const std::string& name, double beta2, Average average);

/// Intersection over union.
/// \param spares_absent  Leaves classes that never occur out of the mean;
///                       otherwise they count as 0.
CountsFormula
jaccard_formula(const std::string& name, Average average, bool spares_absent);

/// Divides; 0 / 0 is 0, as in scikit-learn.
torch::Tensor ratio(const torch::Tensor& over, const torch::Tensor& under);

}  // namespace tern
