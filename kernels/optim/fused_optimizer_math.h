#pragma once

#include <cstdint>
#include <math.h>

#include "tern/kernels/kernel_args.h"

// What fused_optimizer.cpp, which knows tensors, hands to the kernels, which
// know pointers, and the update of one element, once for the CPU and the CUDA
// kernels. Nothing of LibTorch or CUDA is included.
namespace tern {

struct StepTensor {
  float* param;
  const void* grad;
  /// nullptr, or the float16 or bfloat16 copy of `param`.
  void* weight;
  float* step;
  int64_t size;
  ElementType grad_type, weight_type;
};

struct SgdTensor : StepTensor {
  float* states[1];  // the momentum buffer, or nullptr
};

struct AdamTensor : StepTensor {
  float* states[3];  // exp_avg, exp_avg_sq; max_exp_avg_sq or nullptr
};

/// nullptr: absent. Both on the device of the tensors.
struct GradStatePointers {
  const float* grad_scale = nullptr;
  const float* found_inf = nullptr;
};

/// SgdTensor with FusedSgdArgs, AdamTensor with FusedAdamArgs.
template <class Tensor, class Args>
void fused_step_cpu(
    const Tensor* tensors,
    int64_t count,
    const Args& args,
    const GradStatePointers& grad_state);

/// \param args_on_device  nullptr, or device memory that the kernels read
///                        instead of `args`.
/// \return a cudaError_t. The list may be freed when the call returns.
template <class Tensor, class Args>
int fused_step_cuda(
    const Tensor* tensors,
    int64_t count,
    const Args& args,
    const Args* args_on_device,
    const GradStatePointers& grad_state,
    CUstream_st* stream);

/// The numbers of a step that may have been recorded: those in memory, if there
/// are any, for the moments that the step was made with.
TERN_ELEMENT_MATH FusedSgdArgs
args_now(const FusedSgdArgs& args, const FusedSgdArgs* on_device) {
  if (!on_device) return args;
  FusedSgdArgs now = *on_device;
  if (args.momentum == 0) now.momentum = 0;
  return now;
}

TERN_ELEMENT_MATH FusedAdamArgs
args_now(const FusedAdamArgs& args, const FusedAdamArgs* on_device) {
  if (!on_device) return args;
  FusedAdamArgs now = *on_device;
  now.amsgrad = args.amsgrad;
  return now;
}

/// What all elements of one parameter share in one SGD step.
struct SgdStep {
  float lr, momentum, gradient_share, weight_decay, decay_factor;
  bool has_momentum, is_first, nesterov, l2;
};

TERN_ELEMENT_MATH SgdStep
make_step(const FusedSgdArgs& args, float steps_done) {
  SgdStep step;
  step.lr = static_cast<float>(args.lr);
  step.momentum = static_cast<float>(args.momentum);
  step.gradient_share = static_cast<float>(1 - args.dampening);
  step.weight_decay = static_cast<float>(args.weight_decay);
  step.decay_factor = args.decoupled_weight_decay
                          ? static_cast<float>(1 - args.lr * args.weight_decay)
                          : 1.0f;
  step.has_momentum = args.momentum != 0;
  step.is_first = steps_done == 0;
  step.nesterov = args.nesterov;
  step.l2 = !args.decoupled_weight_decay && args.weight_decay != 0;
  return step;
}

TERN_ELEMENT_MATH void
update(const SgdStep& step, float grad, float& param, float (&states)[1]) {
  float& momentum_buffer = states[0];
  param *= step.decay_factor;
  if (step.l2) grad += step.weight_decay * param;
  if (step.has_momentum) {
    const float moved = step.is_first ? grad
                                      : step.momentum * momentum_buffer +
                                            step.gradient_share * grad;
    momentum_buffer = moved;
    grad = step.nesterov ? grad + step.momentum * moved : moved;
  }
  param -= step.lr * grad;
}

/// What all elements of one parameter share in one Adam step.
struct AdamStep {
  float beta1, gradient_share, beta2, square_share, eps;
  float weight_decay, decay_factor;
  /// lr / (1 - beta1^t) and 1 / sqrt(1 - beta2^t).
  float step_size, denom_factor;
  bool l2, amsgrad;
};

TERN_ELEMENT_MATH AdamStep
make_step(const FusedAdamArgs& args, float steps_done) {
  const double t = static_cast<double>(steps_done) + 1;
  AdamStep step;
  step.beta1 = static_cast<float>(args.beta1);
  step.gradient_share = static_cast<float>(1 - args.beta1);
  step.beta2 = static_cast<float>(args.beta2);
  step.square_share = static_cast<float>(1 - args.beta2);
  step.eps = static_cast<float>(args.eps);
  step.weight_decay = static_cast<float>(args.weight_decay);
  step.decay_factor = args.decoupled_weight_decay
                          ? static_cast<float>(1 - args.lr * args.weight_decay)
                          : 1.0f;
  // In double: in float, 1 - 0.999^1 would be wrong in its fifth digit.
  step.step_size = static_cast<float>(args.lr / (1 - pow(args.beta1, t)));
  step.denom_factor = static_cast<float>(1 / sqrt(1 - pow(args.beta2, t)));
  step.l2 = !args.decoupled_weight_decay && args.weight_decay != 0;
  step.amsgrad = args.amsgrad;
  return step;
}

TERN_ELEMENT_MATH void
update(const AdamStep& step, float grad, float& param, float (&states)[3]) {
  float &exp_avg = states[0], &exp_avg_sq = states[1],
        &max_exp_avg_sq = states[2];
  param *= step.decay_factor;
  if (step.l2) grad += step.weight_decay * param;
  exp_avg = step.beta1 * exp_avg + step.gradient_share * grad;
  exp_avg_sq = step.beta2 * exp_avg_sq + step.square_share * grad * grad;
  float square = exp_avg_sq;
  if (step.amsgrad) {
    const float before = max_exp_avg_sq;
    // A NaN wins, as in torch.maximum.
    square = square > before || square != square ? square : before;
    max_exp_avg_sq = square;
  }
#ifdef __CUDACC__
  const float root = sqrtf(square);
#else
  const float root = __builtin_sqrtf(square);
#endif
  param -= step.step_size * (exp_avg / (root * step.denom_factor + step.eps));
}

}  // namespace tern
