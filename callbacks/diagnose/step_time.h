#pragma once

#include <functional>

#include "tern/learner/hyper_parameter.h"

namespace tern {

class Learner;

/// Returns the median time of a training step on a CPU, in milliseconds: from
/// the first callback after a batch was loaded to the optimizer's step. Trains
/// two steps to warm up, then for half a second, but at least two and at most
/// 50 steps. Afterwards everything in `learn` is as before. For
/// `audit_precision` and `./dev doctor`.
/// \param set_up  Called before training, for example to change the precision.
/// \throws c10::Error if a stop was requested.
double step_milliseconds(
    Learner& learn,
    const LearningRates& lr = {},
    const std::function<void()>& set_up = nullptr);

}  // namespace tern
