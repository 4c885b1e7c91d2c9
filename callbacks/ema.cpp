#include "tern/callbacks/ema.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/saved_value.h"
#include "tern/learner/learner.h"

namespace tern {

Ema::Ema(Options options) : options_(options) {
  TORCH_CHECK_VALUE(
      options.decay >= 0 && options.decay < 1,
      fmt::format(
          "[Ema] decay is {}; expected a number in [0, 1).",
          options.decay));
}

void Ema::apply(Learner& learn) {
  weights_.stand_in(learn);
}

void Ema::restore(Learner& learn) {
  weights_.stand_down(learn);
}

void Ema::on_train_begin(Learner& learn) {
  is_evaluating_ = false;
  if (learn.state().is_trial) return;
  if (weights_.stands_in()) {
    if (weights_.are_untouched(learn)) {
      weights_.stand_down(learn);
    } else {
      weights_.clear();
      steps_ = 0;
    }
  }
  weights_.follow(learn);
}

// Not on_step_end: a step that is a CUDA graph has passed that already.
void Ema::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training || state.is_trial || state.skip_step ||
      state.step_result == StepResult::skipped) {
    return;
  }
  ++steps_;
  const auto n = static_cast<double>(steps_);
  const double decay = options_.warm_up
                           ? std::min(options_.decay, (1 + n) / (10 + n))
                           : options_.decay;
  weights_.move_towards_weights(1 - decay);
}

void Ema::on_eval_begin(Learner& learn) {
  if (learn.state().is_trial || weights_.stands_in()) return;
  weights_.stand_in(learn);
  is_evaluating_ = true;
}

void Ema::on_eval_end(Learner& learn) {
  if (is_evaluating_) weights_.stand_down(learn);
  is_evaluating_ = false;
}

void Ema::on_train_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (options_.at_end && !state.is_trial && !state.failed) apply(learn);
}

StateDict Ema::state_dict() const {
  StateDict state;
  if (weights_.is_empty()) return state;
  state.insert("steps", torch::tensor(steps_));
  weights_.save(state);
  return state;
}

void Ema::load_state_dict(const StateDict& state) {
  if (state.is_empty()) {
    weights_.clear();
    steps_ = 0;
    return;
  }
  steps_ = saved_value("Ema", state, "steps").item<int64_t>();
  weights_.load(state);
}

}  // namespace tern
