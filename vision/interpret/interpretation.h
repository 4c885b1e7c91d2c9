#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/dataset.h"
#include "tern/learner/learner.h"
#include "tern/learner/report/report.h"
#include "tern/vision/interpret/classification_report.h"
#include "tern/vision/interpret/confusion_matrix.h"

namespace tern {

/// A sample and its loss.
struct TopLoss {
  int64_t index = 0;  // index in the dataset
  double loss = 0;
};

/// A model's predictions for every sample of a split. The model runs only once,
/// in `from`.
class Interpretation {
 public:
  /// Evaluates a split in the order of the dataset, without augmentation.
  /// \throws c10::ValueError if the split does not exist or has no targets, if
  ///         there is no per-sample loss, or if the targets are boxes or
  ///         points. (For boxes, use DetectionInterpretation.)
  static Interpretation from(Learner& learn, Split split = Split::valid) {
    return {learn, split};
  }

  int64_t size() const { return predictions_.preds.size(0); }
  const torch::Tensor& preds() const { return predictions_.preds; }
  const torch::Tensor& targets() const { return predictions_.targets; }
  const torch::Tensor& losses() const { return predictions_.losses; }
  /// For each row of the tensors above, the index of its sample in the dataset.
  const std::vector<int64_t>& indices() const { return predictions_.indices; }
  const std::vector<std::string>& classes() const { return data_.classes; }
  /// Describes what `preds` predict, including the threshold.
  const OutputInfo& output() const { return predictions_.info[0]; }
  const Dataset& dataset() const { return *dataset_; }

  /// Returns the samples with the largest losses, largest first, or, if
  /// `largest` is false, with the smallest losses, smallest first.
  /// \param k  Number of samples; 0: all.
  std::vector<TopLoss> top_losses(int64_t k = 0, bool largest = true) const;

  /// Plots the samples of `top_losses` with target, prediction, loss,
  /// probability of the target, and file name. Masks are plotted as in
  /// show_results.
  ///
  ///   interp.plot_top_losses("top_losses.png", 9);
  ///
  /// \throws c10::ValueError if the inputs are not images; IoError.
  void plot_top_losses(
      const std::filesystem::path& file,
      int64_t k = 9,
      bool largest = true) const;
  /// Returns the same plot as [H, W, 3] kByte.
  torch::Tensor draw_top_losses(int64_t k = 9, bool largest = true) const;

 protected:
  Interpretation(Learner& learn, Split split);

  TargetKind kind() const;
  /// Returns the targets, with -100 in place of the class that the loss
  /// ignores.
  torch::Tensor known_targets() const;
  /// Returns the class that the loss ignores, or -100 if there is none.
  int64_t ignore_index() const { return ignore_index_; }

 private:
  /// Rows of `top_losses` in the predictions.
  std::vector<int64_t> top_rows(int64_t k, bool largest) const;

  DataBunch data_;
  std::shared_ptr<const Dataset> dataset_;
  int64_t ignore_index_ = -100;
  Predictions predictions_;
};

/// Interpretation of a classifier or a segmentation model.
class ClassificationInterpretation final : public Interpretation {
 public:
  /// \throws the errors of Interpretation; c10::ValueError if the targets are
  ///         not one class per sample or pixel.
  static ClassificationInterpretation from(
      Learner& learn,
      Split split = Split::valid) {
    return {learn, split};
  }

  /// [C, C] kLong: rows are the actual classes, columns the predicted classes,
  /// for the model's C outputs. Targets that are not among these classes, such
  /// as void pixels, and the class that the loss ignores are not counted.
  const torch::Tensor& confusion_matrix() const { return matrix_.counts(); }

  /// Returns precision, recall and F1 of each class except the class that the
  /// loss ignores.
  ClassificationReport report() const { return matrix_.report(); }

  /// Returns the pairs of different classes that were confused at least
  /// `min_count` times, most frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const {
    return matrix_.most_confused(min_count);
  }

  /// Plots the confusion matrix. Cells show numbers for up to 60 classes.
  /// \param file  PNG or SVG, depending on the suffix.
  /// \param normalize  Plots fractions of the actual class instead of counts.
  /// \throws c10::ValueError for any other suffix; IoError.
  void plot_confusion_matrix(
      const std::filesystem::path& file,
      bool normalize = false) const {
    matrix_.plot(file, normalize);
  }

 private:
  ClassificationInterpretation(Learner& learn, Split split);
  ConfusionMatrix count() const;

  ConfusionMatrix matrix_;
};

/// Returns a report section for an image classifier: confusion matrix, most
/// confused classes, and the images with the largest losses.
///
///   const auto interp = ClassificationInterpretation::from(learn);
///   make_report(learn, {.sections = {classification_section(interp)}})
///       .save("run.html");
///
/// \param top_losses  Number of images with the largest losses.
ReportSection classification_section(
    const ClassificationInterpretation& interp,
    int64_t top_losses = 9);

}  // namespace tern
