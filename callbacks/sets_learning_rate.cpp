#include "tern/callbacks/sets_learning_rate.h"

#include <fmt/format.h>

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
            "rate.",
            other->name(),
            callback.name()));
  }
}

}  // namespace tern
