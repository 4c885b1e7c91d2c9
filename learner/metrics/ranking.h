#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics that depend on the order of all scores in a dataset. They keep the
// outputs and targets of the whole dataset on the device until the value is
// computed, which synchronizes with the device. In distributed training, each
// process then receives the outputs and targets of all processes.

/// Area under the ROC curve. Outputs are [N] or [N, 1], logits or probabilities
/// of a binary classifier, or [N, C], logits of C classes. With two classes,
/// the value is the area for class 1; otherwise it is the mean over the classes
/// of the area for a class against all others. Classes to which all or none of
/// the samples belong are left out; NaN if no class remains. Targets are [N]
/// classes, or one-hot [N, C]; `axis` as for accuracy.
Metric roc_auc(int64_t axis = 1);

/// Average precision: the weighted mean of the precisions at all thresholds,
/// with the increase in recall from the previous threshold as the weight.
/// Outputs as for roc_auc. A class without samples counts as 0.
Metric average_precision(int64_t axis = 1);

/// `roc_auc` and `average_precision` for multi-label targets. Outputs and
/// targets are [N, L]; the value is the mean over labels.
Metric roc_auc_multi();
Metric average_precision_multi();

/// Spearman's rank correlation over all numbers; equal numbers get their mean
/// rank. Outputs and targets have the same shape.
Metric spearman_corrcoef();

}  // namespace tern
