#pragma once

#include <functional>
#include <optional>

#include "tern/learner/hyper_parameter.h"

namespace tern {

class Learner;

/// Returns the median time of a training batch on a CPU, in milliseconds,
/// without waiting for data: from its arrival to the end of its callbacks. With
/// GradientAccumulation, most batches have no optimizer step. Trains two batches
/// to warm up, then for half a second, but at least three and at most 50
/// batches. Afterwards everything in `learn` is as before. For `audit_precision`
/// and `./dev doctor`.
/// \param set_up  Called before training, for example to change the precision.
/// \return  Unset if a callback ended the fit earlier.
/// \throws c10::Error if a stop was requested.
std::optional<double> step_milliseconds(
    Learner& learn,
    const LearningRates& lr = {},
    const std::function<void()>& set_up = nullptr);

/// True if a time is shorter than another by at least 5%. Smaller differences
/// may be chance.
inline bool is_clearly_shorter(double time, double other) {
  return time <= 0.95 * other;
}

}  // namespace tern
