#pragma once

#include <cstdint>
#include <math.h>
#include <string.h>

#include "tern/kernels/kernel_args.h"

// Arguments that fused_step.cpp, which works with tensors, passes to the
// kernels, which work with pointers; and the update of one element, shared by
// the CPU and the CUDA kernels. Includes nothing from LibTorch or CUDA.
namespace tern {

/// Elements that are summed together, counted from the first one of a tensor.
constexpr int64_t kStepBlock = 1024;

struct StepTensor {
  /// nullptr: `weight`, in bfloat16, is the parameter itself.
  float* param;
  const void* grad;
  /// nullptr, or the float16 or bfloat16 copy of `param`.
  void* weight;
  /// For Lookahead, or nullptr.
  float* slow_weight;
  /// With a trust ratio: memory for two sums per kStepBlock elements.
  double* sums;
  float* step;
  int64_t size;
  ElementType grad_type, weight_type;
  bool has_8bit_moments;
  /// For a bfloat16 parameter.
  uint32_t rounding_key;
};

// Moments in 8 bits (dynamic_map.h) or floats. Only the first one is signed.

struct SgdTensor : StepTensor {
  void* states[1];  // the momentum buffer, or nullptr
};

struct AdamTensor : StepTensor {
  void* states[3];  // exp_avg, exp_avg_sq; max_exp_avg_sq or nullptr
};

/// nullptr: unset. Both are on the device of the tensors.
struct GradStatePointers {
  const float* grad_scale = nullptr;
  const float* found_inf = nullptr;
};

/// Defined for SgdTensor with FusedSgdArgs, and AdamTensor with FusedAdamArgs.
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

/// Returns the arguments of a step that may have been captured: the arguments
/// in device memory if there are any. Whether the step uses momentum, amsgrad
/// or a trust ratio does not change after the capture.
TERN_ELEMENT_MATH FusedSgdArgs
args_now(const FusedSgdArgs& args, const FusedSgdArgs* on_device) {
  if (!on_device) return args;
  FusedSgdArgs now = *on_device;
  if (args.momentum == 0) now.momentum = 0;
  if (args.trust_coeff == 0) now.trust_coeff = 0;
  return now;
}

TERN_ELEMENT_MATH FusedAdamArgs
args_now(const FusedAdamArgs& args, const FusedAdamArgs* on_device) {
  if (!on_device) return args;
  FusedAdamArgs now = *on_device;
  now.amsgrad = args.amsgrad;
  now.trust_ratio = args.trust_ratio;
  return now;
}

/// True if a step begins with sums over each tensor.
TERN_ELEMENT_MATH bool has_trust_ratio(const FusedSgdArgs& args) {
  return args.trust_coeff != 0;
}
TERN_ELEMENT_MATH bool has_trust_ratio(const FusedAdamArgs& args) {
  return args.trust_ratio;
}

/// Values shared by all elements of a parameter, for every optimizer.
struct Step {
  float weight_decay, decay_factor, lookahead_alpha;
  uint32_t count;  // number of earlier steps
  bool l2, looks_ahead;
};

template <class Args>
TERN_ELEMENT_MATH void
set_common(Step& step, const Args& args, double steps_done) {
  step.weight_decay = static_cast<float>(args.weight_decay);
  step.decay_factor = args.decoupled_weight_decay
                          ? static_cast<float>(1 - args.lr * args.weight_decay)
                          : 1.0f;
  step.l2 = !args.decoupled_weight_decay && args.weight_decay != 0;
  step.count = static_cast<uint32_t>(steps_done);
  const int64_t k = args.lookahead.k;
  step.looks_ahead = k > 0 && (static_cast<int64_t>(steps_done) + 1) % k == 0;
  step.lookahead_alpha = static_cast<float>(args.lookahead.alpha);
}

/// Applies weight decay of either kind, before everything else.
TERN_ELEMENT_MATH void decay(const Step& step, float& grad, float& param) {
  param *= step.decay_factor;
  if (step.l2) grad += step.weight_decay * param;
}

/// Ends a Lookahead step.
TERN_ELEMENT_MATH void look_ahead(const Step& step, float& param, float& slow) {
  slow += step.lookahead_alpha * (param - slow);
  param = slow;
}

/// Rounds `value` stochastically to bfloat16 and returns the bits: chooses one
/// of its two neighbors at random, the nearer one with the higher probability,
/// so that sums of small updates are correct on average. The random number
/// depends only on parameter, step and element, not on the thread or device.
TERN_ELEMENT_MATH uint16_t round_stochastically(
    float value,
    uint32_t rounding_key,
    uint32_t count,
    int64_t element) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  const uint32_t key =
      hash_of(rounding_key, count, static_cast<uint32_t>(element >> 32));
  const uint32_t noise = hash_of(key, 0, static_cast<uint32_t>(element)) >> 16;
  const bool is_finite = (bits & 0x7F800000u) != 0x7F800000u;
  const uint32_t quiet = (bits & 0x007FFFFFu) != 0 ? 0x00400000u : 0;
  return static_cast<uint16_t>((is_finite ? bits + noise : bits | quiet) >> 16);
}

/// The two values whose norms over a tensor determine its trust ratio.
struct Measured {
  float param, change;
};

struct SgdStep : Step {
  float lr, momentum, gradient_share;
  bool has_momentum, is_first, nesterov;
};

TERN_ELEMENT_MATH SgdStep
make_step(const FusedSgdArgs& args, float steps_done) {
  SgdStep step;
  set_common(step, args, steps_done);
  step.lr = static_cast<float>(args.lr);
  step.momentum = static_cast<float>(args.momentum);
  step.gradient_share = static_cast<float>(1 - args.dampening);
  step.has_momentum = args.momentum != 0;
  step.is_first = steps_done == 0;
  step.nesterov = args.nesterov;
  return step;
}

TERN_ELEMENT_MATH Measured
measure(const SgdStep& step, float grad, float param, float (&)[1]) {
  decay(step, grad, param);
  return {param, grad};
}

/// Applies the trust ratio to the learning rate of the step.
/// \param param_sum, change_sum  Sums of the squares of the values that
///                               `measure` returned.
TERN_ELEMENT_MATH void trust(
    SgdStep& step,
    const FusedSgdArgs& args,
    double param_sum,
    double change_sum) {
  const double norm = sqrt(param_sum);
  const double lr = args.lr * args.trust_coeff * norm /
                    (sqrt(change_sum) + norm * args.weight_decay + args.eps);
  const bool is_clipped = args.clip && !(lr < args.lr);
  step.lr = static_cast<float>(is_clipped ? args.lr : lr);
}

TERN_ELEMENT_MATH void
update(const SgdStep& step, float grad, float& param, float (&states)[1]) {
  float& momentum_buffer = states[0];
  decay(step, grad, param);
  if (step.has_momentum) {
    const float moved = step.is_first ? grad
                                      : step.momentum * momentum_buffer +
                                            step.gradient_share * grad;
    momentum_buffer = moved;
    grad = step.nesterov ? grad + step.momentum * moved : moved;
  }
  param -= step.lr * grad;
}

struct AdamStep : Step {
  float beta1, gradient_share, beta2, square_share, eps;
  /// lr / (1 - beta1^t), its divisor, and 1 / sqrt(1 - beta2^t).
  float step_size, correction, denom_factor;
  bool amsgrad;
};

TERN_ELEMENT_MATH AdamStep
make_step(const FusedAdamArgs& args, float steps_done) {
  const double t = static_cast<double>(steps_done) + 1;
  AdamStep step;
  set_common(step, args, steps_done);
  step.beta1 = static_cast<float>(args.beta1);
  step.gradient_share = static_cast<float>(1 - args.beta1);
  step.beta2 = static_cast<float>(args.beta2);
  step.square_share = static_cast<float>(1 - args.beta2);
  step.eps = static_cast<float>(args.eps);
  // In double, because in float 1 - 0.999^1 would be wrong in its fifth digit.
  const double power2 = pow(args.beta2, t);
  const double correction = 1 - pow(args.beta1, t);
  double step_size = args.lr / correction;
  step.denom_factor = static_cast<float>(1 / sqrt(1 - power2));
  if (args.rectified) {
    const double r_inf = 2 / (1 - args.beta2) - 1;
    const double r = r_inf - 2 * t * power2 / (1 - power2);
    if (r > 5) {
      step_size *=
          sqrt((r - 4) * (r - 2) * r_inf / ((r_inf - 4) * (r_inf - 2) * r));
    } else {  // the denominator becomes 1
      step.denom_factor = 0;
      step.eps = 1;
    }
  }
  step.step_size = static_cast<float>(step_size);
  step.correction = static_cast<float>(correction);
  step.amsgrad = args.amsgrad;
  return step;
}

/// Updates the moments.
/// \return the value that is multiplied by the step size.
TERN_ELEMENT_MATH float
move_moments(const AdamStep& step, float grad, float (&states)[3]) {
  float &exp_avg = states[0], &exp_avg_sq = states[1],
        &max_exp_avg_sq = states[2];
  exp_avg = step.beta1 * exp_avg + step.gradient_share * grad;
  exp_avg_sq = step.beta2 * exp_avg_sq + step.square_share * grad * grad;
  float square = exp_avg_sq;
  if (step.amsgrad) {
    const float before = max_exp_avg_sq;
    // NaN wins, as in torch.maximum.
    square = square > before || square != square ? square : before;
    max_exp_avg_sq = square;
  }
#ifdef __CUDACC__
  const float root = sqrtf(square);
#else
  const float root = __builtin_sqrtf(square);
#endif
  return exp_avg / (root * step.denom_factor + step.eps);
}

TERN_ELEMENT_MATH Measured
measure(const AdamStep& step, float grad, float param, float (&states)[3]) {
  decay(step, grad, param);
  return {param, move_moments(step, grad, states)};
}

TERN_ELEMENT_MATH void trust(
    AdamStep& step,
    const FusedAdamArgs&,
    double param_sum,
    double change_sum) {
  if (param_sum == 0 || change_sum == 0) return;
  const double ratio = sqrt(param_sum / change_sum) * step.correction;
  step.step_size *= ratio < 10 ? static_cast<float>(ratio) : 10.0f;
}

TERN_ELEMENT_MATH void
update(const AdamStep& step, float grad, float& param, float (&states)[3]) {
  decay(step, grad, param);
  param -= step.step_size * move_moments(step, grad, states);
}

}  // namespace tern
