#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// A callback that sets learning rates. Two of them would overwrite each other.
class SetsLearningRate {
 public:
  virtual ~SetsLearningRate() = default;
  virtual bool sets_learning_rate() const { return true; }
};

/// For on_add of such a callback.
/// \throws c10::ValueError that names both if `learn` has one already.
void check_sets_learning_rate_alone(
    const Learner& learn,
    const Callback& callback);

}  // namespace tern
