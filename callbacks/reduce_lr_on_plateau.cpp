#include "tern/callbacks/reduce_lr_on_plateau.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tern/learner/learner.h"

namespace tern {

ReduceLROnPlateau::ReduceLROnPlateau(Options options)
    : PatientCallback(
          "ReduceLROnPlateau",
          {options.monitor, options.mode, options.min_delta},
          options.patience),
      factor_(options.factor),
      min_lr_(options.min_lr) {
  TORCH_CHECK_VALUE(
      std::isfinite(factor_) && factor_ > 1,
      fmt::format(
          "[ReduceLROnPlateau] factor is {}; expected a number > 1, which the "
          "rates are divided by.",
          factor_));
  TORCH_CHECK_VALUE(
      min_lr_ >= 0,
      fmt::format(
          "[ReduceLROnPlateau] min_lr is {}; expected a number >= 0.",
          min_lr_));
}

void ReduceLROnPlateau::on_add(Learner& learn) {
  check_sets_learning_rate_alone(learn, *this);
}

void ReduceLROnPlateau::act(Learner& learn, int64_t waited) {
  auto& groups = learn.optimizer().param_groups();
  const double last = groups.back().options().get_lr();
  const double divisor =
      min_lr_ > 0 ? std::min(factor_, last / min_lr_) : factor_;
  if (!(divisor > 1)) return;
  for (auto& group : groups) {
    group.options().set_lr(group.options().get_lr() / divisor);
  }
  learn.sink().line(fmt::format(
      "ReduceLROnPlateau: {} did not get better than {:.6f} for {} epoch{}; "
      "the learning rate is {:.3g} now.",
      monitor().monitored(),
      monitor().best(),
      waited,
      waited == 1 ? "" : "s",
      last / divisor));
}

}  // namespace tern
