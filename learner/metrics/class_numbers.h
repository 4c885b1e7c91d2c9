#pragma once

#include <string>

#include <torch/types.h>

namespace tern {

/// Scores and class numbers in one layout, whatever layout they came in.
struct ClassScores {
  torch::Tensor scores;   // [M, C], kFloat or kDouble
  torch::Tensor targets;  // [M] kLong
};

/// Lines up a classifier's answers with the true classes.
///
/// \param metric  Its name, for errors.
/// \param pred    [N, C, ...] as for cross-entropy, or [N, ..., C] as fastai.
/// \param target  [N, ...] or [N, 1], integers or bools.
/// \throws c10::ValueError if no layout fits or `target` is floating.
ClassScores class_scores(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target);

/// The likelier class of every target, [M] kLong. One channel alone (or none)
/// holds the logits of a binary classifier: class 1 where it is > 0.
///
/// \param classes  Receives C, the number of classes; 2 for one channel.
struct ClassNumbers {
  torch::Tensor pred, target;  // [M] kLong
  int64_t classes = 0;
};
ClassNumbers class_numbers(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target);

}  // namespace tern
