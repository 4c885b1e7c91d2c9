#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/interpret/classification_report.h"

namespace tern {

/// Number of samples of one class that were predicted as another class.
struct Confusion {
  std::string actual, predicted;
  int64_t count = 0;
};

/// Counts a classifier's predictions by actual and predicted class. Works on
/// tensors and needs no Learner; ClassificationInterpretation computes one for
/// a Learner's split.
///
///   ConfusionMatrix matrix(logits, targets, {.classes = {"cat", "dog"}});
///   matrix.plot("confusion.svg");
///   fmt::print("{}", matrix.report().to_string());
///
/// Like scikit-learn's confusion_matrix, but with the arguments in PyTorch's
/// order.
class ConfusionMatrix {
 public:
  struct Options {
    /// Class names. A class without a name is shown as its number.
    std::vector<std::string> classes = {};
    /// Does not count samples of this class; -100 counts all.
    int64_t ignore_index = -100;
    /// Number of classes. If 0, it is the number of scores in `preds`; for
    /// class indices it is the number of names, or the largest index + 1.
    int64_t num_classes = 0;
  };

  /// \param preds    Floating-point [N, C] or [N, C, ...], such as logits or
  ///                 probabilities, the largest of which determines the
  ///                 predicted class; or class indices of an integer dtype with
  ///                 the shape of `targets`.
  /// \param targets  Class indices of an integer dtype, [N] or [N, ...].
  /// \throws c10::ValueError for any other shapes or dtypes, a NaN, an invalid
  ///         class index, or if the number of classes is unknown.
  ConfusionMatrix(
      const torch::Tensor& preds,
      const torch::Tensor& targets,
      const Options& options);
  ConfusionMatrix(const torch::Tensor& preds, const torch::Tensor& targets)
      : ConfusionMatrix(preds, targets, Options{}) {}

  /// [C, C] kLong: rows are the actual classes, columns the predicted classes.
  const torch::Tensor& counts() const { return counts_; }
  /// Names of the C classes.
  const std::vector<std::string>& classes() const { return names_; }

  /// Returns precision, recall and F1 of each class except `ignore_index`.
  ClassificationReport report() const;

  /// Returns the pairs of different classes that were confused at least
  /// `min_count` times, most frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const;

  /// Plots the matrix. Cells show numbers for up to 60 classes.
  /// \param file       PNG or SVG, depending on the suffix.
  /// \param normalize  Plots fractions of the actual class instead of counts.
  /// \throws c10::ValueError for any other suffix; IoError.
  void plot(const std::filesystem::path& file, bool normalize = false) const;

 private:
  torch::Tensor counts_;
  std::vector<std::string> names_;
  int64_t ignore_index_ = -100;
};

}  // namespace tern
