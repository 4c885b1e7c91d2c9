#include "tern/tests/kernels/reference.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

namespace tern::reference {

namespace {

bool is_skipped(const GradState& grad_state) {
  return grad_state.found_inf && grad_state.found_inf->item<float>() != 0;
}

at::Tensor unscaled(const at::Tensor& grad, const GradState& grad_state) {
  const at::Tensor out = grad.to(at::kFloat);
  return grad_state.grad_scale ? out / *grad_state.grad_scale : out;
}

/// Applies weight decay of either kind and returns the resulting gradient.
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

/// Correctly rounded. For floats ATen calls MKL, which may be off in the last
/// bit.
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
// rounding, so the products below are separate operations.
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

torch::Tensor normalize_images(
    const torch::Tensor& images,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype) {
  const auto channels = [&](c10::ArrayRef<double> values) {
    return at::tensor(values, at::kFloat)
        .view({1, -1, 1, 1})
        .to(images.device());
  };
  const at::Tensor unit = images.permute({0, 3, 1, 2}).to(at::kFloat) / 255;
  return ((unit - channels(mean)) / channels(stddev))
      .to(dtype, false, false, at::MemoryFormat::ChannelsLast);
}

void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf) {
  check_finite(grads, found_inf);
  for (const at::Tensor& grad : grads) {
    // Halves are multiplied in float and rounded once.
    const auto math_type = at::toOpMathType(grad.scalar_type());
    grad.copy_(grad.to(math_type) * inv_scale.to(math_type));
  }
}

void check_finite(at::TensorList grads, torch::Tensor found_inf) {
  for (const at::Tensor& grad : grads) {
    found_inf.masked_fill_(grad.isfinite().all().logical_not(), 1);
  }
}

}  // namespace tern::reference
