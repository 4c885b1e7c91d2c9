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

namespace tern {

/// A sample and what it costs.
struct TopLoss {
  int64_t index = 0;  // in the data set
  double loss = 0;
};

/// What a model answers to a whole split, looked at sample by sample.
/// The model is asked once, in `from`.
class Interpretation {
 public:
  /// Asks in the data set's own order, without augmentation.
  /// \throws c10::ValueError if there is no such data, it has no targets, or
  ///         the loss has no value for each sample.
  static Interpretation from(Learner& learn, Split split = Split::valid);

  int64_t size() const { return answers_.preds.size(0); }
  const torch::Tensor& preds() const { return answers_.preds; }
  const torch::Tensor& targets() const { return answers_.targets; }
  const torch::Tensor& losses() const { return answers_.losses; }
  const std::vector<std::string>& classes() const { return data_.classes; }
  const DataBunch& data() const { return data_; }
  const Dataset& dataset() const { return *dataset_; }

  /// The samples with the largest losses, the largest first, or with the
  /// smallest. \param k  How many; 0: all.
  std::vector<TopLoss> top_losses(int64_t k = 0, bool largest = true) const;

  /// Draws the samples of `top_losses`: prediction, actual class, loss and the
  /// actual class's probability, and the image's name.
  ///
  ///   interp.plot_top_losses("top_losses.png", 9);
  ///
  /// \throws c10::ValueError if the inputs are no images; IoError.
  void plot_top_losses(
      const std::filesystem::path& file,
      int64_t k = 9,
      bool largest = true) const;
  /// That picture: [H, W, 3] kByte.
  torch::Tensor draw_top_losses(int64_t k = 9, bool largest = true) const;

 protected:
  Interpretation(Learner& learn, Split split);

 private:
  DataBunch data_;
  std::shared_ptr<const Dataset> dataset_;
  Predictions answers_;
};

/// So many samples of one class were taken for another.
struct Confusion {
  std::string actual, predicted;
  int64_t count = 0;
};

/// The same for one class each.
class ClassificationInterpretation final : public Interpretation {
 public:
  /// \throws as Interpretation, and c10::ValueError if the targets are not one
  ///         class for each sample or pixel.
  static ClassificationInterpretation from(
      Learner& learn,
      Split split = Split::valid);

  /// [C, C] kLong: rows are the actual classes, columns the predicted ones.
  /// Targets that are no class, such as an ignored index, are left out.
  const torch::Tensor& confusion_matrix() const { return matrix_; }

  /// The pairs of different classes with at least `min_count` samples, the most
  /// frequent first.
  std::vector<Confusion> most_confused(int64_t min_count = 1) const;

  /// Draws the confusion matrix. \param file  A PNG or, by its suffix, an SVG.
  /// \param normalize  Shares of the actual class instead of counts.
  /// \throws c10::ValueError for another suffix; IoError.
  void plot_confusion_matrix(
      const std::filesystem::path& file,
      bool normalize = false) const;

 private:
  ClassificationInterpretation(Learner& learn, Split split);

  torch::Tensor matrix_;
};

/// What a report on a classifier of images shows beside its curves: the
/// confusion matrix, the classes that are taken for each other, and the images
/// with the largest losses.
///
///   const auto interp = ClassificationInterpretation::from(learn);
///   learn.report("run.html", {.sections = {classification_section(interp)}});
///
/// \param top_losses  How many images.
ReportSection classification_section(
    const ClassificationInterpretation& interp,
    int64_t top_losses = 9);

}  // namespace tern
