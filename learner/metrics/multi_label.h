#pragma once

#include "tern/learner/metric.h"
#include "tern/learner/metrics/average.h"

namespace tern {

// Metrics for samples with any number of labels. Outputs and targets are both
// [N, L]; targets are 0 or 1. A target outside 0 to 1, such as -1 or NaN, is
// unknown and not counted; a target between 0 and 1 counts as 1 above 0.5.
// Names and averages are fastai's: the mean is over all labels, and a label
// that never occurs counts as 0.

struct MultiLabelOptions {
  /// Probability above which a label is predicted; in 0..1.
  double threshold = 0.5;
  /// True: outputs are logits. False: outputs are probabilities.
  bool sigmoid = true;
  /// macro, micro or weighted.
  Average average = Average::macro;
};

/// Fraction of labels that are predicted correctly.
Metric accuracy_multi(double threshold = 0.5, bool sigmoid = true);
/// 1 - accuracy_multi.
Metric hamming_loss_multi(double threshold = 0.5, bool sigmoid = true);
/// Of the samples predicted to have a label, the fraction that has it.
Metric precision_multi(const MultiLabelOptions& options = {});
/// Of the samples that have a label, the fraction predicted to have it.
Metric recall_multi(const MultiLabelOptions& options = {});
/// Weighted harmonic mean of precision and recall, in which recall counts
/// `beta` times as much; beta > 0.
Metric f_beta_multi(double beta = 2, const MultiLabelOptions& options = {});
/// f_beta_multi with beta 1.
Metric f1_multi(const MultiLabelOptions& options = {});
/// Number of samples for which a label is correctly predicted, divided by the
/// number of samples that have the label or for which it is predicted.
Metric jaccard_multi(const MultiLabelOptions& options = {});

}  // namespace tern
