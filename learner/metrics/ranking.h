#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics of the order of all scores in a dataset. They keep the outputs and
// targets of the whole dataset on the device until they are computed, which
// waits for the device. In distributed training each process then receives
// those of all processes.

/// Area under the ROC curve. Outputs are [N] or [N, 1], logits or probabilities
/// of a binary classifier, or [N, C], logits of C classes. The value is that of
/// class 1 if there are two classes, otherwise the mean over each class against
/// all others. Classes that all samples or no samples have are left out; NaN if
/// none remains. Targets are [N] classes, or one-hot [N, C]; `axis` as for
/// accuracy.
Metric roc_auc(int64_t axis = 1);

/// Average precision: the weighted mean of the precisions at all thresholds,
/// with the increase in recall from the previous threshold as the weight.
/// Outputs as for roc_auc. A class that no sample has counts as 0.
Metric average_precision(int64_t axis = 1);

/// The same for multi-label samples. Outputs and targets are [N, L]; the value
/// is the mean over labels.
Metric roc_auc_multi();
Metric average_precision_multi();

/// Spearman's rank correlation over all numbers; equal numbers get their mean
/// rank. Outputs and targets have the same shape.
Metric spearman_corrcoef();

}  // namespace tern
