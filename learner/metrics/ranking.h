#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics of the order of all scores of a set. They keep the outputs and the
// targets of the whole set, on the device, until they are computed, which waits
// for it; in a training of several processes each then gets those of all.

/// Area under the ROC curve. Outputs [N] or [N, 1], logits or probabilities of
/// a binary classifier, or logits [N, C] of C classes: of class 1 with two,
/// else the mean over each class against the others. A class that all samples
/// have, or none, is left out; NaN if nothing is left. Targets [N] classes, or
/// one-hot [N, C]; `axis` as for accuracy.
Metric roc_auc(int64_t axis = 1);

/// Average precision: the precision at each score that is as high as that of a
/// right sample, weighted by the gain in recall. Outputs as for roc_auc; a
/// class that no sample has is 0.
Metric average_precision(int64_t axis = 1);

/// The same for any number of labels a sample: outputs and targets [N, L], the
/// mean over labels.
Metric roc_auc_multi();
Metric average_precision_multi();

/// Spearman's rank correlation of all numbers; equal ones share their mean
/// rank. Outputs and targets of one shape.
Metric spearman_corrcoef();

}  // namespace tern
