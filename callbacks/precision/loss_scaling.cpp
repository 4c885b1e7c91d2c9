#include "tern/callbacks/precision/loss_scaling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/amp_aware.h"
#include "tern/learner/precision/clip_grad.h"
#include "tern/learner/precision/master_weights.h"

namespace tern {

namespace {

bool are_on_one_device(const AmpAware& optimizer) {
  const Tensors gradients = optimizer.gradients();
  return std::all_of(
      gradients.begin(),
      gradients.end(),
      [&](const torch::Tensor& g) {
        return g.device() == gradients[0].device();
      });
}

}  // namespace

LossScaling::LossScaling(
    const GradScalerOptions& options,
    std::optional<double> fixed_scale,
    std::optional<double> clip)
    : scaler_(options), fixed_scale_(fixed_scale), clip_(clip) {}

void LossScaling::outputs_to_fp32(TrainState& state) {
  for (torch::Tensor& output : state.outputs) {
    if (c10::isReducedFloatingType(output.scalar_type())) {
      output = output.to(torch::kFloat);
    }
  }
}

void LossScaling::on_add(Learner& learn) {
  check_only_one(learn.find<LossScaling>(), *this, "both scale the loss");
}

void LossScaling::on_train_begin(Learner& learn) {
  // A fit that ended by an exception may have left a step half done.
  scaler_.forget(learn.optimizer());
  is_unscaled_ = false;
  if (scaler_.is_enabled()) learn.state().scaler = &scaler_;
  if (!master_weights(learn)) return;
  // The optimizer may have been made since the last fit.
  if (auto* fused = dynamic_cast<AmpAware*>(&learn.optimizer())) {
    fused->set_weights(
        master_weights(learn)->masters(),
        master_weights(learn)->weights());
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
  } else if (master_weights(learn)) {
    master_weights(learn)->copy_gradients_to_masters();
  }
  scaler_.unscale_(optimizer);
  is_unscaled_ = true;
}

void LossScaling::abandon(Learner& learn, bool keeps_gradients) {
  scaler_.forget(learn.optimizer());
  if (!std::exchange(is_unscaled_, false) || !keeps_gradients) return;
  const torch::NoGradGuard no_grad;
  if (master_weights(learn)) master_weights(learn)->move_gradients_to_weights();
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
  const bool writes_weights = fused != nullptr;
  // With masters the bits are nobody's but Tern's; without them, PyTorch's.
  const bool clips_at_once = clip_ && fused && master_weights(learn) &&
                             !is_unscaled_ && are_on_one_device(*fused);
  if (clips_at_once) {
    // the scaler does
  } else if (clip_) {
    unscale(learn);
    clip_grad_norm_(optimizer, *clip_);
  } else if (master_weights(learn) && !writes_weights) {
    unscale(learn);
  }
  StepResult result = clips_at_once ? scaler_.step_clipped(optimizer, *clip_)
                                    : scaler_.step(optimizer);
  learn.state().step_overflowed.reset();
  if (result == StepResult::unknown) result = read_on_cpu(optimizer);
  if (result == StepResult::unknown) {
    learn.state().step_overflowed = scaler_.found_inf(optimizer);
  }
  if (master_weights(learn) && !writes_weights) {
    master_weights(learn)->copy_masters_to_weights();
  }
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
  if (fixed_scale_) {
    scaler_.update(*fixed_scale_);
  } else {
    scaler_.update();
  }
}

void LossScaling::on_train_end(Learner& learn) {
  learn.state().scaler = nullptr;
}

StateDict LossScaling::state_dict() const {
  StateDict state;
  if (!scaler_.is_enabled()) return state;
  const GradScalerState now = scaler_.state_dict();
  const auto put = [&](const char* name, auto value) {
    state.insert(name, torch::tensor(value));
  };
  put("scale", now.scale);
  put("growth_factor", now.growth_factor);
  put("backoff_factor", now.backoff_factor);
  put("growth_interval", now.growth_interval);
  put("_growth_tracker", now.growth_tracker);
  return state;
}

void LossScaling::load_state_dict(const StateDict& state) {
  if (!scaler_.is_enabled()) return;
  TORCH_CHECK_VALUE(
      state.contains("scale") && state.contains("_growth_tracker") &&
          state.contains("growth_factor") && state.contains("backoff_factor") &&
          state.contains("growth_interval"),
      "[LossScaling] the state holds no loss scale; it was saved by a training "
      "without one. Use it with the precision that it was saved in.");
  scaler_.load_state_dict(
      {.scale = state["scale"].item<double>(),
       .growth_factor = state["growth_factor"].item<double>(),
       .backoff_factor = state["backoff_factor"].item<double>(),
       .growth_interval = state["growth_interval"].item<int64_t>(),
       .growth_tracker = state["_growth_tracker"].item<int64_t>()});
}

}  // namespace tern
