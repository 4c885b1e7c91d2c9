#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics for regression. Outputs and targets have the same shape; dimensions
// of size 1 may be missing from the targets.

/// Mean squared error over all elements.
Metric mse();

/// Mean absolute error.
Metric mae();

/// Root of the mean squared error over the whole dataset, not a mean of roots.
Metric rmse();

// For outputs [N, k], means over the k columns, like scikit-learn's uniform
// average; NaN if the targets are constant.

/// Coefficient of determination, 1 - squared error / variance.
Metric r2_score();

/// 1 - variance of the error / variance of the targets.
Metric explained_variance();

/// Pearson correlation of predictions and targets.
Metric pearson_corrcoef();

}  // namespace tern
