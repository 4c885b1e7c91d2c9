#pragma once

#include "tern/learner/metric.h"

namespace tern {

/// Mean squared error over all elements. Outputs and targets have one shape;
/// dimensions of size 1 may be missing in the targets.
Metric mse();

/// Mean absolute error.
Metric mae();

/// Root of the mean squared error of the whole set, not a mean of roots.
Metric rmse();

}  // namespace tern
