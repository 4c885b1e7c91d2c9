#include "tern/callbacks/ema.h"

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
  if (weights_.stands_in()) {
    if (weights_.are_untouched(learn)) {
      weights_.stand_down(learn);
    } else {
      forget();
    }
  }
  weights_.follow(learn);
}

void Ema::forget() {
  weights_.clear();
  steps_ = torch::zeros({}, torch::kDouble);
}

// The average of other weights says nothing about these.
void Ema::on_load(Learner& learn) {
  forget();
  if (learn.is_fitting()) weights_.follow(learn);
}

// Not on_step_end: a step that is a CUDA graph has passed that already. Where
// the device alone knows whether the step was made, it counts too: a skipped
// step moves nothing.
void Ema::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training || state.skip_step ||
      state.step_result == StepResult::skipped) {
    return;
  }
  const torch::NoGradGuard no_grad;
  torch::Tensor made;
  if (state.step_result == StepResult::unknown) {
    made = state.step_overflowed.eq(0).to(torch::kDouble);
    steps_ = steps_.to(made.device(), /*non_blocking=*/true) + made;
  } else {
    steps_ = steps_ + 1;
  }
  torch::Tensor decay = torch::full_like(steps_, options_.decay);
  if (options_.warm_up) {
    decay = torch::minimum(decay, (1 + steps_) / (10 + steps_));
  }
  torch::Tensor share = 1 - decay;
  if (made.defined()) share = share * made;
  weights_.move_towards_weights(share);
}

void Ema::on_eval_begin(Learner& learn) {
  if (weights_.stands_in()) return;
  weights_.stand_in(learn);
  is_evaluating_ = true;
}

void Ema::on_eval_end(Learner& learn) {
  if (is_evaluating_) weights_.stand_down(learn);
  is_evaluating_ = false;
}

void Ema::on_train_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (options_.at_end && !state.failed) apply(learn);
}

StateDict Ema::state_dict() const {
  StateDict state;
  if (weights_.is_empty()) return state;
  state.insert("steps", steps_.to(torch::kCPU, torch::kLong));
  weights_.save(state);
  return state;
}

void Ema::load_state_dict(const StateDict& state) {
  if (state.is_empty()) {
    forget();
    return;
  }
  steps_ = saved_value("Ema", state, "steps").to(torch::kDouble);
  weights_.load(state);
}

}  // namespace tern
