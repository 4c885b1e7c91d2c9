#pragma once

#include "tern/learner/metric.h"
#include "tern/learner/metrics/average.h"

namespace tern {

// Metrics of samples that have any number of labels: outputs and targets are
// both [N, L], targets 0 or 1. A target outside 0 to 1, such as -1 or NaN, is
// not known and counts nowhere; one between 0 and 1 counts as 1 above 0.5. Names
// and averages are fastai's: the mean over all labels, of which one that never
// comes up is 0.

struct MultiLabelOptions {
  /// Probabilities above it count as a label; in 0..1.
  double threshold = 0.5;
  /// Outputs are logits, not probabilities.
  bool sigmoid = true;
  /// macro, micro or weighted.
  Average average = Average::macro;
};

/// Share of right answers where a sample has several labels.
Metric accuracy_multi(double threshold = 0.5, bool sigmoid = true);
/// 1 - accuracy_multi.
Metric hamming_loss_multi(double threshold = 0.5, bool sigmoid = true);
/// Share of right answers among what was called a label.
Metric precision_multi(const MultiLabelOptions& options = {});
/// Share of a label's samples that were found.
Metric recall_multi(const MultiLabelOptions& options = {});
/// Harmonic mean of both, recall counting `beta` times as much; beta > 0.
Metric f_beta_multi(double beta = 2, const MultiLabelOptions& options = {});
/// f_beta_multi with beta 1.
Metric f1_multi(const MultiLabelOptions& options = {});
/// Samples that rightly got a label, over those that got it or should have.
Metric jaccard_multi(const MultiLabelOptions& options = {});

}  // namespace tern
