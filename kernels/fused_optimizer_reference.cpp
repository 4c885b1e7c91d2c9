#include "tern/kernels/fused_optimizer_reference.h"

#include <cmath>

#include <ATen/ATen.h>

namespace tern::reference {
namespace {

bool is_skipped(const GradState& grad_state) {
  return grad_state.found_inf && grad_state.found_inf->item<float>() != 0;
}

at::Tensor unscaled(const at::Tensor& grad, const GradState& grad_state) {
  const at::Tensor out = grad.to(at::kFloat);
  return grad_state.grad_scale ? out / *grad_state.grad_scale : out;
}

/// Weight decay of either kind; returns the gradient to go on with.
at::Tensor decay(
    const at::Tensor& param,
    const at::Tensor& grad,
    double lr,
    double weight_decay,
    bool decoupled) {
  if (weight_decay == 0) {
    return grad;
  }
  if (decoupled) {
    param.mul_(1 - lr * weight_decay);
    return grad;
  }
  return grad + param * weight_decay;
}

/// Rounded correctly; for floats ATen calls MKL, which may miss the last bit.
at::Tensor exact_sqrt(const at::Tensor& x) {
  return x.to(at::kDouble).sqrt().to(at::kFloat);
}

void write_weight(const OptimizerTensors& tensors, size_t i) {
  if (!tensors.weights.empty() && tensors.weights[i].defined()) {
    tensors.weights[i].copy_(tensors.params[i]);
  }
}

}  // namespace

// `a.add_(b, alpha)` may fuse its multiplication and addition into one
// rounding, so products are spelled out below.
void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state) {
  const at::NoGradGuard no_grad;
  if (is_skipped(grad_state)) {
    return;
  }
  for (size_t i = 0; i < tensors.params.size(); ++i) {
    const at::Tensor& param = tensors.params[i];
    at::Tensor grad = decay(
        param,
        unscaled(tensors.grads[i], grad_state),
        args.lr,
        args.weight_decay,
        args.decoupled_weight_decay);
    if (args.momentum != 0) {
      const at::Tensor& buffer = momentum_buffers[i];
      const bool is_first = tensors.steps[i].item<float>() == 0;
      buffer.copy_(
          is_first ? grad
                   : buffer * args.momentum + grad * (1 - args.dampening));
      grad = args.nesterov ? grad + buffer * args.momentum : buffer;
    }
    param.sub_(grad * args.lr);
    write_weight(tensors, i);
    tensors.steps[i].add_(1);
  }
}

void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state) {
  const at::NoGradGuard no_grad;
  if (is_skipped(grad_state)) {
    return;
  }
  for (size_t i = 0; i < tensors.params.size(); ++i) {
    const at::Tensor& param = tensors.params[i];
    const at::Tensor grad = decay(
        param,
        unscaled(tensors.grads[i], grad_state),
        args.lr,
        args.weight_decay,
        args.decoupled_weight_decay);
    const double t = tensors.steps[i].item<float>() + 1.0;
    exp_avgs[i].copy_(exp_avgs[i] * args.beta1 + grad * (1 - args.beta1));
    exp_avg_sqs[i].copy_(
        exp_avg_sqs[i] * args.beta2 + grad * (1 - args.beta2) * grad);
    at::Tensor square = exp_avg_sqs[i];
    if (args.amsgrad) {
      square = max_exp_avg_sqs[i];
      square.copy_(at::maximum(square, exp_avg_sqs[i]));
    }
    const at::Tensor denom =
        exact_sqrt(square) * (1 / std::sqrt(1 - std::pow(args.beta2, t))) +
        args.eps;
    const double step_size = args.lr / (1 - std::pow(args.beta1, t));
    param.sub_(exp_avgs[i] / denom * step_size);
    write_weight(tensors, i);
    tensors.steps[i].add_(1);
  }
}

}  // namespace tern::reference
