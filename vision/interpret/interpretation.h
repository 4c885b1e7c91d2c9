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
  int64_t index = 0;  // in the dataset
  double loss = 0;
};

/// The predictions of a model for a whole split, sample by sample. The model
/// runs once, in `from`.
class Interpretation {
 public:
  /// Predicts in the dataset's order, without augmentation.
  /// \throws c10::ValueError if the split does not exist or has no targets,
  ///         there is no per-sample loss, or the targets are points or boxes, for
  ///         which DetectionInterpretation is.
  static Interpretation from(Learner& learn, Split split = Split::valid) {
    return {learn, split};
  }

  int64_t size() const { return answers_.preds.size(0); }
  const torch::Tensor& preds() const { return answers_.preds; }
  const torch::Tensor& targets() const { return answers_.targets; }
  const torch::Tensor& losses() const { return answers_.losses; }
  /// Of each row of these, the index of its sample in the dataset.
  const std::vector<int64_t>& indices() const { return answers_.indices; }
  const std::vector<std::string>& classes() const { return data_.classes; }
  /// What `preds` predict, and by which threshold.
  const OutputInfo& output() const { return answers_.info[0]; }
  const Dataset& dataset() const { return *dataset_; }

  /// Returns the samples with the largest losses, largest first, or with the
  /// smallest.
  /// \param k  Number of samples; 0: all.
  std::vector<TopLoss> top_losses(int64_t k = 0, bool largest = true) const;

  /// Plots the samples of `top_losses` with target, prediction, loss,
  /// probability of the target, and file name; of masks as show_results does.
  ///
  ///   interp.plot_top_losses("top_losses.png", 9);
  ///
  /// \throws c10::ValueError if the inputs are not images; IoError.
  void plot_top_losses(
      const std::filesystem::path& file,
      int64_t k = 9,
      bool largest = true) const;
  /// Returns that plot as [H, W, 3] kByte.
  torch::Tensor draw_top_losses(int64_t k = 9, bool largest = true) const;

 protected:
  Interpretation(Learner& learn, Split split);

  TargetKind kind() const;
  /// -100 where the target is the class that the loss ignores.
  torch::Tensor known_targets() const;
  /// The class that the loss ignores; -100 if there is none.
  int64_t ignore_index() const { return ignore_index_; }

 private:
  /// Rows of `top_losses`.
  std::vector<int64_t> top_rows(int64_t k, bool largest) const;

  DataBunch data_;
  std::shared_ptr<const Dataset> dataset_;
  int64_t ignore_index_ = -100;
  Predictions answers_;
};

/// Interpretation of a classifier.
class ClassificationInterpretation final : public Interpretation {
 public:
  /// \throws as Interpretation, and c10::ValueError if the targets are not one
  ///         class per sample or pixel.
  static ClassificationInterpretation from(
      Learner& learn,
      Split split = Split::valid) {
    return {learn, split};
  }

  /// [C, C] kLong: rows are the actual classes, columns the predicted ones, of
  /// the model's C outputs. Other targets, such as void pixels and the class
  /// that the loss ignores, are not counted.
  const torch::Tensor& confusion_matrix() const { return matrix_.counts(); }

  /// Precision, recall and F1 of each class but the one that the loss ignores.
  ClassificationReport report() const { return matrix_.report(); }

  /// Returns the pairs of different classes with at least `min_count` samples,
  /// most frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const {
    return matrix_.most_confused(min_count);
  }

  /// Plots the confusion matrix; with numbers in the cells up to 60 classes.
  /// \param file  A PNG or, by its suffix, an SVG.
  /// \param normalize  Plots fractions of the actual class instead of counts.
  /// \throws c10::ValueError for another suffix; IoError.
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

/// Section of a report on an image classifier: confusion matrix, most confused
/// classes, and images with the largest losses.
///
///   const auto interp = ClassificationInterpretation::from(learn);
///   make_report(learn, {.sections = {classification_section(interp)}})
///       .save("run.html");
///
/// \param top_losses  Number of images.
ReportSection classification_section(
    const ClassificationInterpretation& interp,
    int64_t top_losses = 9);

}  // namespace tern
