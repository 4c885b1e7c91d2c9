#pragma once

#include <functional>
#include <optional>

#include "tern/learner/hyper_parameter.h"

namespace tern {

class Learner;

/// Returns the median time of a training step on a CPU, in milliseconds,
/// without waiting for data: from the arrival of a batch to the end of its
/// callbacks. Trains two steps to warm up, then for half a second, but at least
/// two and at most 50 steps. Afterwards everything in `learn` is as before. For
/// `audit_precision` and `./dev doctor`.
/// \param set_up  Called before training, for example to change the precision.
/// \return  Unset if a callback ended the fit earlier.
/// \throws c10::Error if a stop was requested.
std::optional<double> step_milliseconds(
    Learner& learn,
    const LearningRates& lr = {},
    const std::function<void()>& set_up = nullptr);

}  // namespace tern
