#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/kernels/kernel_args.h"

namespace tern {

/// The tensors of one fused optimizer step; index i of every list belongs to
/// parameter i. Sizes must match per index; all tensors must be on one device
/// and dense (contiguous in any order of dimensions, such as channels-last).
/// Writes as under torch::NoGradGuard: tensor versions increase, but autograd
/// records no graph.
struct OptimizerTensors {
  /// kFloat: the parameters, or their fp32 master weights. kBFloat16:
  /// parameters without master weights; they are computed in fp32 and rounded
  /// stochastically.
  at::TensorList params;
  /// kFloat, kHalf or kBFloat16 (may differ per index). Never written. All must
  /// be defined: leave parameters without a gradient out of the lists. A
  /// gradient whose strides differ from its parameter's costs a copy.
  at::TensorList grads;
  /// Empty, or one entry per parameter: an undefined tensor, or the kHalf or
  /// kBFloat16 weight that receives the rounded parameter.
  at::TensorList weights;
  /// 0-dim kFloat, one per parameter: its number of steps so far. Incremented
  /// unless the step is skipped.
  at::TensorList steps;
  /// With Lookahead, kFloat like `params` and all defined; otherwise empty.
  /// They start as copies of the parameters.
  at::TensorList slow_weights = {};
  /// One per parameter if the parameters are kBFloat16; otherwise empty. Random
  /// numbers depend only on key, step count and element, so that a step can be
  /// repeated.
  c10::ArrayRef<uint32_t> rounding_keys = {};
};

/// The loss scaler's state. Both tensors are on the device of the parameters,
/// so that a step does not synchronize with the host.
struct GradState {
  /// 0-dim kFloat; gradients are divided by it. Unset: already unscaled.
  std::optional<torch::Tensor> grad_scale;
  /// 0-dim kFloat. Any value except 0 skips the step: parameters, weights,
  /// moments and step counts stay bit-identical, and no weight decay is
  /// applied.
  std::optional<torch::Tensor> found_inf;
};

/// Returns the size of an 8-bit moment. Instead of a kFloat like the parameter,
/// a moment may be a contiguous one-dimensional kByte tensor of this size; an
/// all-zero tensor represents zeros. All moments of a parameter must be of the
/// same kind. Each block of 256 elements has its own magnitude and the codes of
/// bitsandbytes' dynamic map, 1.02 bytes per element.
int64_t moment_8bit_size(const at::Tensor& param);

/// Returns the bytes of a kernel's arguments on `device`, for `args_on_device`
/// below.
torch::Tensor to_tensor(const FusedSgdArgs& args, torch::Device device);
torch::Tensor to_tensor(const FusedAdamArgs& args, torch::Device device);

/// Applies one step of SGD or LARS to all tensors in one pass over memory; LARS
/// reads parameters and gradients once more for their norms.
///
/// \param momentum_buffers  kFloat like `params`, or 8 bits; empty if momentum
///                          is 0. A parameter's first step (`steps[i] == 0`)
///                          sets its buffer to the gradient and ignores its
///                          previous content, as torch.optim.SGD does.
/// \param args_on_device    Undefined, or the result of `to_tensor` on the
///                          device of the parameters, for steps that are
///                          captured and replayed. The kernel then reads its
///                          numbers from this tensor when it runs, and uses
///                          `args` only to decide whether to use momentum and
///                          a trust ratio.
/// \throws c10::ValueError if a size, dtype, device or layout differs from the
///         above; nothing is written then.
void fused_sgd_(
    const OptimizerTensors& tensors,
    at::TensorList momentum_buffers,
    const FusedSgdArgs& args,
    const GradState& grad_state = {},
    const torch::Tensor& args_on_device = {});

/// Applies one step of Adam, AdamW, RAdam or LAMB to all tensors in one pass
/// over memory; LAMB reads everything once more for the norms.
///
/// \param exp_avgs, exp_avg_sqs  kFloat like `params`, or 8-bit; the moments.
/// \param max_exp_avg_sqs        The same for amsgrad, otherwise empty.
/// \param args_on_device  As for `fused_sgd_`; `args` determines whether
///                        amsgrad and a trust ratio are used.
/// \throws c10::ValueError if a size, dtype, device or layout differs from the
///         above; nothing is written then.
///
/// With 16-bit gradients and weights and fp32 master weights, a step moves 28
/// bytes per parameter. On the CPU the result is bit-identical for every
/// instruction set and thread count; CUDA differs from it by a few units in the
/// last place.
void fused_adam_(
    const OptimizerTensors& tensors,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    const FusedAdamArgs& args,
    const GradState& grad_state = {},
    const torch::Tensor& args_on_device = {});

}  // namespace tern
