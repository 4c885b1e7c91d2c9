#pragma once

#include "tern/learner/metric.h"

namespace tern {

// Metrics of numbers. Outputs and targets have one shape; dimensions of size 1
// may be missing in the targets.

/// Mean squared error over all elements.
Metric mse();

/// Mean absolute error.
Metric mae();

/// Root of the mean squared error of the whole set, not a mean of roots.
Metric rmse();

// These are means over the numbers that a sample has, [N, k], as scikit-learn's
// uniform average; NaN where the targets do not vary.

/// Coefficient of determination, 1 - squared error / variance.
Metric r2_score();

/// 1 - variance of the error / variance of the targets.
Metric explained_variance();

/// Pearson's correlation of predictions and targets.
Metric pearson_corrcoef();

}  // namespace tern
