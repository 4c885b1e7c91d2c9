#include "tern/callbacks/precision/loss_scaling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

namespace {

bool are_on_one_device(const AmpAware& optimizer) {
  const Tensors gradients = optimizer.gradients();
  return std::ranges::all_of(gradients, [&](const torch::Tensor& g) {
    return g.device() == gradients[0].device();
  });
}

}  // namespace

LossScaling::LossScaling(const char* where, const Settings& settings)
    : scaler_(settings.scaler), where_(where), settings_(settings) {
  TERN_CHECK_VALUE(
      settings.dtype == torch::kHalf || settings.dtype == torch::kBFloat16,
      "[{}] dtype is {}; expected kHalf or kBFloat16.",
      where,
      c10::toString(settings.dtype));
  check_positive(where, "clip", settings.clip.value_or(1));
}

void outputs_to_fp32(Tensors& outputs) {
  for (torch::Tensor& output : outputs) {
    if (c10::isReducedFloatingType(output.scalar_type())) {
      output = output.to(torch::kFloat);
    }
  }
}

void LossScaling::on_loss_begin(Learner& learn) {
  if (settings_.loss_fp32) outputs_to_fp32(learn.state().outputs);
}

void LossScaling::on_add(Learner& learn) {
  check_only_one(learn.find<LossScaling>(), *this, "both scale the loss");
  if (learn.parts().is_parallel) check_parallel();
  kept_ = kept_parameters(learn.model(), settings_.keep_fp32, where_);
}

void LossScaling::check_parallel() const {
  TERN_CHECK_VALUE(
      settings_.keep_fp32.empty(),
      "[{}] keep_fp32 names layers, and the model computes on several devices; "
      "expected one. Use to_distributed with a process for each.",
      where_);
}

void LossScaling::forward(Learner&, c10::function_ref<void()> compute) {
  if (settings_.keep_fp32.empty()) return compute();
  const KeepFp32Guard guard(kept_);
  compute();
}

void LossScaling::on_train_begin(Learner& learn) {
  // A fit that ended by an exception may have left a step half done.
  scaler_.forget_all();
  is_unscaled_ = false;
  if (scaler_.is_enabled()) learn.state().scaler = &scaler_;
  const auto masters = master_weights(learn);
  if (!masters) return;
  // The optimizer may have been made since the last fit.
  if (auto* fused = dynamic_cast<AmpAware*>(&learn.optimizer())) {
    fused->set_weights(masters->masters(), masters->weights());
  }
}

void LossScaling::on_backward_begin(Learner& learn) {
  learn.state().loss_grad = scaler_.scale(learn.state().loss_grad);
}

// The optimizer's parameters get fp32 gradients, unscaled. For a fused
// optimizer with masters that is one pass more over the gradients.
void LossScaling::unscale(Learner& learn) {
  if (is_unscaled_) return;
  torch::optim::Optimizer& optimizer = learn.optimizer();
  if (auto* fused = dynamic_cast<AmpAware*>(&optimizer)) {
    fused->move_gradients_to_masters();
  } else if (const auto masters = master_weights(learn)) {
    masters->move_gradients_to_masters();
  }
  scaler_.unscale_(optimizer);
  is_unscaled_ = true;
}

void LossScaling::abandon(Learner& learn, bool keeps_gradients) {
  scaler_.forget(learn.optimizer());
  if (!std::exchange(is_unscaled_, false) || !keeps_gradients) return;
  const torch::NoGradGuard no_grad;
  if (const auto masters = master_weights(learn)) {
    masters->move_gradients_to_weights();
  }
  for (const ModelTensor& p : learn.model().parameters()) {
    torch::Tensor gradient = p.tensor.grad();
    if (!gradient.defined() || !scaler_.is_enabled()) continue;
    gradient.copy_(scaler_.scale(gradient.to(torch::kFloat)));
  }
}

// What a fused optimizer decided; in host memory nobody waits for it.
StepResult LossScaling::read_on_cpu(
    const torch::optim::Optimizer& optimizer) const {
  const torch::Tensor found = scaler_.found_inf(optimizer);
  if (!found.is_cpu()) return StepResult::unknown;
  return *found.const_data_ptr<float>() != 0 ? StepResult::skipped
                                             : StepResult::stepped;
}

StepResult LossScaling::step(Learner& learn) {
  torch::optim::Optimizer& optimizer = learn.optimizer();
  auto* const fused = dynamic_cast<AmpAware*>(&optimizer);
  const auto masters = master_weights(learn);
  const bool has_to_copy = masters && !fused;
  // Only without master weights must the result match PyTorch's bit for bit.
  const bool clips_at_once = settings_.clip && fused && masters &&
                             !is_unscaled_ && are_on_one_device(*fused);
  if (clips_at_once) {
    // the scaler does
  } else if (settings_.clip) {
    unscale(learn);
    clip_grad_norm_(optimizer, *settings_.clip);
  } else if (has_to_copy) {
    unscale(learn);
  }
  StepResult result = clips_at_once
                          ? scaler_.step_clipped(optimizer, *settings_.clip)
                          : scaler_.step(optimizer);
  learn.state().step_overflowed.reset();
  if (result == StepResult::unknown) result = read_on_cpu(optimizer);
  if (result == StepResult::unknown) {
    learn.state().step_overflowed = scaler_.found_inf(optimizer);
  }
  if (has_to_copy) masters->copy_masters_to_weights();
  is_unscaled_ = false;
  return result;
}

double LossScaling::loss_scale() const {
  return scaler_.is_enabled() ? scaler_.get_scale() : std::nan("");
}

torch::Tensor LossScaling::loss_scale_record() const {
  return scaler_.record();
}

void LossScaling::on_step_end(Learner&) {
  if (settings_.fixed_scale) {
    scaler_.update(*settings_.fixed_scale);
  } else {
    scaler_.update();
  }
}

void LossScaling::on_train_end(Learner& learn) {
  learn.state().scaler = nullptr;
}

StateDict LossScaling::state_dict() const {
  if (!scaler_.is_enabled()) return StateDict();
  StateDict result;
  scaler_.state_dict().for_each([&](const char* name, auto field) {
    result.insert(name, torch::tensor(field));
  });
  return result;
}

void LossScaling::load_state_dict(const StateDict& state) {
  if (!scaler_.is_enabled()) return;
  TORCH_CHECK_VALUE(
      state.contains("scale"),
      "[LossScaling] the state holds no loss scale; it was saved by a training "
      "without one. Use it with the precision that it was saved in.");
  GradScalerState saved;
  saved.for_each([&](const char* name, auto& field) {
    field = saved_value("LossScaling", state, name)
                .item<std::decay_t<decltype(field)>>();
  });
  scaler_.load_state_dict(saved);
}

}  // namespace tern
