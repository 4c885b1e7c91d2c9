#include "tern/callbacks/averages/ema.h"

#include <algorithm>

#include <ATen/autocast_mode.h>
#include <c10/util/ScopeExit.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/eval_mode.h"
#include "tern/learner/loop.h"

namespace tern {

Ema::Ema(Options options) : options_(options) {
  TERN_CHECK_VALUE(
      options.decay >= 0 && options.decay < 1,
      "[Ema] decay is {}; expected a number in [0, 1).",
      options.decay);
}

void Ema::on_train_begin(Learner& learn) {
  step_back();
  if (is_swapped_in()) {
    if (are_untouched(learn)) {
      restore(learn);
    } else {
      forget();
      loop::replace_weight_copies(parts_of(learn));
    }
  }
  follow(learn);
}

void Ema::forget() {
  clear_averages();
  steps_ = 0;
  device_steps_.reset();
}

// The old average does not apply to newly loaded weights.
void Ema::on_load(Learner& learn) {
  forget();
  if (learn.state().is_fitting) follow(learn);
}

// Not in on_step_end, because a captured CUDA graph has already run past it.
void Ema::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training || state.skip_step ||
      state.step_result == StepResult::skipped) {
    return;
  }
  const torch::NoGradGuard no_grad;
  if (state.step_result == StepResult::unknown) {
    follow_on_device(state.step_overflowed);
    return;
  }
  steps_ = steps() + 1;
  device_steps_.reset();
  const auto n = static_cast<double>(steps_);
  const double decay = options_.warm_up
                           ? std::min(options_.decay, (1 + n) / (10 + n))
                           : options_.decay;
  move_towards_weights(1 - decay);
}

void Ema::on_step_end(Learner& learn) {
  if (parts_of(learn).step.follows_batch) on_batch_end(learn);
}

// If only the device knows whether the step was skipped, the count is kept on
// the device too. A skipped step changes nothing.
void Ema::follow_on_device(const torch::Tensor& overflowed) {
  const torch::Tensor made = overflowed.eq(0).to(torch::kDouble);
  if (!device_steps_.defined()) {
    device_steps_ = torch::full({}, steps_, made.options());
  }
  device_steps_ = device_steps_ + made;
  torch::Tensor decay = torch::full_like(device_steps_, options_.decay);
  if (options_.warm_up) {
    decay = torch::minimum(decay, (1 + device_steps_) / (10 + device_steps_));
  }
  move_towards_weights((1 - decay) * made);
}

int64_t Ema::steps() const {
  return device_steps_.defined()
             ? static_cast<int64_t>(device_steps_.item<double>())
             : steps_;
}

// A callback may start an evaluation within another; only the outermost
// evaluation swaps the weights.
void Ema::on_eval_begin(Learner& learn) {
  if (parts_of(learn).evaluation.depth == 1) stand_in(learn);
}

void Ema::on_eval_end(Learner& learn) {
  if (parts_of(learn).evaluation.depth == 1) step_back();
}

Tensors Ema::forward(Learner& learn, const Tensors& inputs) {
  TORCH_CHECK_VALUE(
      !inputs.empty(),
      "[Ema::forward] there is no input; expected the inputs of the model, "
      "such as state().batch_data.inputs.");
  LearnerParts& l = parts_of(learn);
  const torch::NoGradGuard no_grad;
  // The cache holds converted training weights under the same tensors as keys.
  at::autocast::clear_cache();
  const auto clear_cache = c10::make_scope_exit(at::autocast::clear_cache);
  const EvalModeGuard eval(learn.model());
  const bool is_in_already = has_stand_in();
  const auto put_back = c10::make_scope_exit([this, is_in_already] {
    if (!is_in_already) step_back();
  });
  stand_in(learn);  // may run out of memory
  Tensors moved;
  for (const torch::Tensor& input : inputs) {
    const auto dtype = input.is_floating_point() ? learn.state().input_dtype
                                                 : input.scalar_type();
    moved.push_back(input.to(learn.data().device, dtype));
  }
  Tensors outputs;
  loop::in_forward_precision(l, [&] { outputs = l.model.forward(moved); });
  for (torch::Tensor& output : outputs) {
    if (c10::isReducedFloatingType(output.scalar_type())) {
      output = output.to(torch::kFloat);
    }
  }
  return outputs;
}

void Ema::on_train_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (options_.at_end && !state.failed && !state.is_removal) apply(learn);
}

// The model keeps the average if it was swapped in at the end of a fit.
void Ema::on_remove(Learner&) {
  step_back();
  forget_own();
}

StateDict Ema::state_dict() const {
  StateDict state;
  if (!has_averages()) return state;
  state.insert("steps", torch::tensor(steps(), torch::kLong));
  save_averages(state);
  return state;
}

void Ema::load_state_dict(const StateDict& state) {
  if (state.is_empty()) {
    forget();
    return;
  }
  steps_ = saved_value("Ema", state, "steps").item<int64_t>();
  device_steps_.reset();
  load_averages(state);
}

OptionValues Ema::option_values() const {
  return {
      {"decay", option_text(options_.decay)},
      {"warm_up", option_text(options_.warm_up)},
      {"at_end", option_text(options_.at_end)}};
}

}  // namespace tern
