#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/interpret/classification_report.h"

namespace tern {

/// Number of samples of one class that were predicted as another.
struct Confusion {
  std::string actual, predicted;
  int64_t count = 0;
};

/// Counts of a classifier's predictions by actual and predicted class, of tensors
/// that need no Learner; ClassificationInterpretation has one of a Learner's split.
///
///   ConfusionMatrix matrix(logits, targets, {.classes = {"cat", "dog"}});
///   matrix.plot("confusion.svg");
///   fmt::print("{}", matrix.report().to_string());
///
/// As scikit-learn's confusion_matrix, with the arguments in PyTorch's order.
class ConfusionMatrix {
 public:
  struct Options {
    /// Names of the classes; others are called by their numbers.
    std::vector<std::string> classes = {};
    /// Samples of this class are not counted; -100: all are.
    int64_t ignore_index = -100;
    /// How many classes there are. 0: as `preds` has scores; of class numbers as
    /// many as there are names, or up to the largest number.
    int64_t num_classes = 0;
  };

  /// \param preds    [N, C] or [N, C, ...] of a floating type, such as logits or
  ///                 probabilities, of which the largest is predicted; or class
  ///                 numbers of an integer type, of the shape of `targets`.
  /// \param targets  [N] or [N, ...] of an integer type.
  /// \throws c10::ValueError for other shapes or types, a NaN, a number that is no
  ///         class, or where nothing says how many classes there are.
  ConfusionMatrix(
      const torch::Tensor& preds,
      const torch::Tensor& targets,
      const Options& options);
  ConfusionMatrix(const torch::Tensor& preds, const torch::Tensor& targets)
      : ConfusionMatrix(preds, targets, Options{}) {}

  /// [C, C] kLong: rows are the actual classes, columns the predicted ones.
  const torch::Tensor& counts() const { return counts_; }
  /// Of the C classes.
  const std::vector<std::string>& classes() const { return names_; }

  /// Precision, recall and F1 of each class but the one that is not counted.
  ClassificationReport report() const;

  /// Returns the pairs of different classes with at least `min_count` samples,
  /// most frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const;

  /// Plots the matrix; with numbers in the cells up to 60 classes.
  /// \param file       A PNG or, by its suffix, an SVG.
  /// \param normalize  Plots fractions of the actual class instead of counts.
  /// \throws c10::ValueError for another suffix; IoError.
  void plot(const std::filesystem::path& file, bool normalize = false) const;

 private:
  torch::Tensor counts_;
  std::vector<std::string> names_;
  int64_t ignore_index_ = -100;
};

}  // namespace tern
