#include "tern/callbacks/callback_checks.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

void check_sets_learning_rate_alone(
    const Learner& learn,
    const Callback& callback) {
  const auto sets = [](const Callback& c) {
    const auto* setter = dynamic_cast<const SetsLearningRate*>(&c);
    return setter && setter->sets_learning_rate();
  };
  if (!sets(callback)) return;
  for (const auto& other : learn.callbacks()) {
    TORCH_CHECK_VALUE(
        !sets(*other),
        fmt::format(
            "[Learner::add] {} and {} both set the learning rate and would "
            "overwrite each other; remove one of them, or fit with a constant "
            "learning rate.",
            other->name(),
            callback.name()));
  }
}

void check_only_one(
    const std::shared_ptr<Callback>& other,
    const Callback& callback,
    const char* why) {
  TORCH_CHECK_VALUE(
      !other,
      fmt::format(
          "[Learner::add] {} and {} would {}; remove one of them.",
          other ? other->name() : "",
          callback.name(),
          why));
}

const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name) {
  const torch::Tensor* value = state.find(name);
  TORCH_CHECK_VALUE(
      value,
      fmt::format(
          "[{0}] the saved state has no \"{1}\"; expected that of a {0}.",
          owner,
          name));
  return *value;
}

}  // namespace tern
