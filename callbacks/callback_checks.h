#pragma once

#include <memory>
#include <string>

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

/// For on_add of a callback of which a Learner can have only one.
/// \param other  One that it has already; null: none.
/// \param why    What two of them would do: "both change the loaders".
/// \throws c10::ValueError that names both if there is another.
void check_only_one(
    const std::shared_ptr<Callback>& other,
    const Callback& callback,
    const char* why);

/// `state[name]`, for load_state_dict.
/// \throws c10::ValueError that names `owner` if it is missing.
const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name);

}  // namespace tern
