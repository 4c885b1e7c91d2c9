#include "tern/callbacks/gradients.h"

#include <cmath>

#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/loop.h"

namespace tern {

GradientAccumulation::GradientAccumulation(Options options)
    : options_(options) {
  TERN_CHECK_VALUE(
      (options.batches >= 1 && options.samples == 0) ||
          (options.samples >= 1 && options.batches == 0),
      "[GradientAccumulation] batches is {} and samples is {}; expected "
      "one of them >= 1 and the other unset.",
      options.batches,
      options.samples);
}

void GradientAccumulation::on_add(Learner& learn) {
  check_only_one(
      learn.find<GradientAccumulation>(),
      *this,
      "both accumulate gradients");
}

void GradientAccumulation::on_train_begin(Learner& learn) {
  learn.state().accumulation = {
      .batches = options_.batches,
      .samples = options_.samples};
}

// If removed during a fit, every batch ends with a step, starting after the
// next step.
void GradientAccumulation::on_train_end(Learner& learn) {
  learn.state().accumulation = {};
}

GradientClip::GradientClip(double max_norm)
    : GradientClip(Options{.max_norm = max_norm}) {}

GradientClip::GradientClip(Options options) : options_(options) {
  const double limit = options.max_value.value_or(options.max_norm);
  TERN_CHECK_VALUE(
      limit > 0,
      "[GradientClip] {} is {}; expected a number > 0.",
      options.max_value ? "max_value" : "max_norm",
      limit);
}

void GradientClip::on_step(Learner& learn) {
  loop::unscale_gradients(parts_of(learn));
  if (options_.max_value) {
    clip_grad_value_(learn.optimizer(), *options_.max_value);
  } else {
    const torch::Tensor norm =
        clip_grad_norm_(learn.optimizer(), options_.max_norm);
    // Written in place, so that a replayed step writes to the recorded address.
    const bool fits = norm_.defined() && norm_.device() == norm.device();
    norm_ = fits ? norm_.copy_(norm) : norm;
  }
}

GradientPenalty::GradientPenalty(double weight) : weight_(weight) {
  TERN_CHECK_VALUE(
      std::isfinite(weight),
      "[GradientPenalty] weight is {}; expected a finite number.",
      weight);
}

void GradientPenalty::on_backward_begin(Learner& learn) {
  TrainState& state = learn.state();
  Tensors parameters;
  for (const ModelTensor& parameter : learn.model().parameters()) {
    if (parameter.tensor.requires_grad()) {
      parameters.push_back(parameter.tensor);
    }
  }
  // Scaled for backward, so that 16-bit gradients do not underflow. The
  // division by the scale happens on the device, since get_scale() would
  // synchronize.
  torch::Tensor loss = state.loss_grad, scale;
  if (state.scaler) {
    scale = state.scaler->scale(torch::ones({}, loss.options()));
    loss = loss * scale;
  }
  const Tensors gradients = torch::autograd::grad(
      {loss},
      parameters,
      /*grad_outputs=*/{},
      /*retain_graph=*/true,
      /*create_graph=*/true,
      /*allow_unused=*/true);
  // The gradient of vector_norm at 0 is 0; the gradient of sqrt would be
  // infinite.
  Tensors norms;
  for (const torch::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    TORCH_CHECK_VALUE(
        !gradient.is_sparse(),
        "[GradientPenalty] a gradient is sparse, and LibTorch cannot "
        "differentiate through it; expected dense gradients. Create the "
        "embedding with sparse(false).");
    const torch::Tensor fp32 = gradient.to(
        torch::promote_types(gradient.scalar_type(), torch::kFloat));
    norms.push_back(
        torch::linalg_vector_norm(scale.defined() ? fp32 / scale : fp32, 2));
  }
  state.loss_grad = state.loss_grad +
                    weight_ * torch::linalg_vector_norm(torch::stack(norms), 2);
}

OptionValues GradientAccumulation::option_values() const {
  return {
      {"batches", option_text(options_.batches)},
      {"samples", option_text(options_.samples)}};
}

OptionValues GradientClip::option_values() const {
  return {
      {"max_norm", option_text(options_.max_norm)},
      {"max_value", option_text(options_.max_value)}};
}

OptionValues GradientPenalty::option_values() const {
  return {{"weight", option_text(weight_)}};
}

}  // namespace tern
