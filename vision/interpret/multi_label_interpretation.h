#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/types.h>

#include "tern/vision/interpret/classification_report.h"
#include "tern/vision/interpret/interpretation.h"

namespace tern {

/// Which labels to count: the actual or the predicted labels.
enum class LabelSource { targets, preds };

/// Interpretation of a multi-label classifier at its threshold, which
/// `tune_threshold` can choose.
///
///   auto interp = MultiLabelInterpretation::from(learn);
///   fmt::print("{}", interp.report().to_string());
///   interp.plot_co_occurrence("together.png");
class MultiLabelInterpretation final : public Interpretation {
 public:
  /// \throws the errors of Interpretation; c10::ValueError if the targets are
  ///         not 0 or 1 for each class of the data.
  static MultiLabelInterpretation from(
      Learner& learn,
      Split split = Split::valid) {
    return {learn, split};
  }

  /// Precision, recall and F1 of each label.
  ClassificationReport report() const;

  /// Returns the number of samples that have both of two labels, [L, L] kLong.
  /// The diagonal contains the number of samples with each label.
  torch::Tensor co_occurrence(LabelSource source = LabelSource::targets) const;

  /// Plots label co-occurrence: the fraction of the samples with the row's
  /// label that also have the column's label.
  /// \param file  PNG or SVG, depending on the suffix.
  /// \throws c10::ValueError for any other suffix; IoError.
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

/// Returns a report section for a multi-label classifier: the report of the
/// labels, the co-occurrence of actual and of predicted labels, and the images
/// with the largest losses.
/// \param top_losses  Number of images with the largest losses.
ReportSection classification_section(
    const MultiLabelInterpretation& interp,
    int64_t top_losses = 9);

}  // namespace tern
