#include "tern/learner/amp/clip_grad.h"

#include <fmt/ranges.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/optim/fused_optimizer.h"

namespace tern {

namespace {

void check_dense(const char* call, const Tensors& gradients) {
  for (const torch::Tensor& gradient : gradients) {
    TERN_CHECK_VALUE(
        gradient.layout() == torch::kStrided,
        "[{}] a gradient of shape {} is sparse; expected a dense gradient. "
        "Create the embedding with sparse(false), or omit clipping.",
        call,
        gradient.sizes());
  }
}

}  // namespace

torch::Tensor joint_norm(const Tensors& tensors) {
  check_dense("joint_norm", tensors);
  if (tensors.empty()) return torch::zeros({});
  // Sums in float, because the square of a half overflows long before the half
  // itself.
  torch::ScalarType type = torch::kFloat;
  Tensors real;
  for (const torch::Tensor& tensor : tensors) {
    real.push_back(
        tensor.is_complex() ? torch::view_as_real(tensor.resolve_conj())
                            : tensor);
    type = torch::promote_types(type, real.back().scalar_type());
  }
  return at::linalg_vector_norm(torch::stack(at::_foreach_norm(real, 2, type)));
}

torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm) {
  // Adds 1e-6, as PyTorch does, to avoid a division by a norm of 0. To match
  // PyTorch's bits, multiplies by the reciprocal, because Python computes
  // max_norm / tensor that way.
  return ((norm + 1e-6).reciprocal() * max_norm).clamp_max(1.0);
}

Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

namespace {

// Warns if there are none: under a loss scale, a Learner's callback that clips
// the parameters itself finds no gradients. A fit's sink shows the warning
// once.
Tensors found_gradients(const char* call, const Tensors& parameters) {
  Tensors gradients = gradients_of(parameters);
  check_dense(call, gradients);
  if (gradients.empty() && !parameters.empty()) {
    TORCH_WARN(
        "[",
        call,
        "] no parameter has a gradient; nothing is clipped. In a callback, use "
        "GradientClip, or learn.gradients(): with a loss scale the gradients "
        "of the parameters are undefined.");
  }
  return gradients;
}

}  // namespace

torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm) {
  TERN_CHECK_VALUE(
      max_norm > 0,
      "[clip_grad_norm_] max_norm is {}; expected a number > 0.",
      max_norm);
  const torch::NoGradGuard no_grad;
  const Tensors grads = found_gradients("clip_grad_norm_", parameters);
  torch::Tensor norm = joint_norm(grads);
  if (!grads.empty()) {
    torch::_foreach_mul_(grads, clip_coefficient(norm, max_norm));
  }
  return norm;
}

torch::Tensor clip_grad_norm_(
    torch::optim::Optimizer& optimizer,
    double max_norm) {
  return clip_grad_norm_(optim::parameters_of(optimizer), max_norm);
}

void clip_grad_value_(const Tensors& parameters, double max_value) {
  TERN_CHECK_VALUE(
      max_value > 0,
      "[clip_grad_value_] max_value is {}; expected a number > 0.",
      max_value);
  const torch::NoGradGuard no_grad;
  const Tensors grads = found_gradients("clip_grad_value_", parameters);
  if (grads.empty()) return;
  for (const torch::Tensor& grad : grads) {
    TERN_CHECK_VALUE(
        !grad.is_complex(),
        "[clip_grad_value_] a gradient of shape {} is complex, and complex "
        "numbers have no order; expected real gradients. Clip by norm.",
        grad.sizes());
  }
  at::_foreach_clamp_min_(grads, -max_value);
  at::_foreach_clamp_max_(grads, max_value);
}

void clip_grad_value_(torch::optim::Optimizer& optimizer, double max_value) {
  clip_grad_value_(optim::parameters_of(optimizer), max_value);
}

}  // namespace tern
