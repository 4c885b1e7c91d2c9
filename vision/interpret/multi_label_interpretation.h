#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/types.h>

#include "tern/vision/interpret/classification_report.h"
#include "tern/vision/interpret/interpretation.h"

namespace tern {

/// Whose labels are looked at: those that samples have, or that were predicted.
enum class LabelSource { targets, preds };

/// Interpretation of a model that gives a sample any number of labels, by the
/// threshold that goes with it (`tune_threshold` chooses one).
///
///   auto interp = MultiLabelInterpretation::from(learn);
///   fmt::print("{}", interp.report().to_string());
///   interp.plot_co_occurrence("together.png");
class MultiLabelInterpretation final : public Interpretation {
 public:
  /// \throws as Interpretation, and c10::ValueError if the targets are not 0 or
  ///         1 for each class of the data.
  static MultiLabelInterpretation from(
      Learner& learn,
      Split split = Split::valid) {
    return {learn, split};
  }

  /// Precision, recall and F1 of each label.
  ClassificationReport report() const;

  /// Returns how many samples have two labels together, [L, L] kLong; on the
  /// diagonal how many have a label at all.
  torch::Tensor co_occurrence(LabelSource source = LabelSource::targets) const;

  /// Plots which labels come together: of the samples with the row's label the
  /// share that has the column's too.
  /// \param file  A PNG or, by its suffix, an SVG.
  /// \throws c10::ValueError for another suffix; IoError.
  void plot_co_occurrence(
      const std::filesystem::path& file,
      LabelSource source = LabelSource::targets) const;

 private:
  MultiLabelInterpretation(Learner& learn, Split split);
  const torch::Tensor& labels(LabelSource source) const {
    return source == LabelSource::targets ? actual_ : predicted_;
  }

  torch::Tensor actual_, predicted_;  // [N, L] kLong, 0 or 1
};

/// Section of a report on such a model: the labels' report, which of them come
/// together, in truth and as predicted, and images with the largest losses.
/// \param top_losses  Number of images.
ReportSection classification_section(
    const MultiLabelInterpretation& interp,
    int64_t top_losses = 9);

}  // namespace tern
