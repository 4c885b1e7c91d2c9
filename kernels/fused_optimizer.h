#pragma once

#include <torch/types.h>

#include <optional>

namespace tern {

/// The tensors of one fused optimizer step; index i of every list belongs to
/// parameter i. Shapes agree per index, everything is dense, contiguous in the
/// same order, and on one device.
struct OptimizerTensors {
  /// kFloat. The parameters, or their fp32 masters.
  at::TensorList params;
  /// kFloat, kHalf or kBFloat16 (may differ per index). Never written.
  at::TensorList grads;
  /// Empty, or one entry per parameter: an undefined tensor, or the kHalf or
  /// kBFloat16 weight that receives the rounded parameter.
  at::TensorList weights;
  /// 0-dim kFloat: how many steps this parameter has made. Advanced by one
  /// unless the step is skipped.
  at::TensorList steps;
};

/// What mixed precision knows about the gradients. Both live on the device of
/// the parameters, so that nobody waits for them.
struct GradState {
  /// 0-dim kFloat; gradients are divided by it. None: already unscaled.
  std::optional<torch::Tensor> grad_scale;
  /// 0-dim kFloat; anything but 0 skips the step: parameters, weights,
  /// moments, step counts and weight decay stay bit for bit as they were.
  std::optional<torch::Tensor> found_inf;
};

struct FusedSgdArgs {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  /// false: L2, added to the gradient. true: `param *= 1 - lr * weight_decay`.
  bool decoupled_weight_decay = false;
};

/// One SGD step over the list in one pass over memory.
///
/// \param momentum_buffers  kFloat like `params`; empty when momentum is 0. A
///                          parameter's first step (`steps[i] == 0`) sets its
///                          buffer to the gradient whatever it held before, as
///                          torch.optim.SGD does.
void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state = {});

struct FusedAdamArgs {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;
  /// false: Adam, L2 added to the gradient. true: AdamW.
  bool decoupled_weight_decay = false;
};

/// One Adam or AdamW step over the list in one pass over memory.
///
/// \param exp_avgs, exp_avg_sqs  kFloat like `params`; the two moments.
/// \param max_exp_avg_sqs        The same for amsgrad, else empty.
///
/// With half gradients, masters and weights this moves 28 bytes a parameter.
void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state = {});

}  // namespace tern
