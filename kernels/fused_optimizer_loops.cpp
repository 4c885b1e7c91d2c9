#include "tern/kernels/convert_loops.h"
#include "tern/kernels/fused_optimizer_math.h"

namespace tern {
namespace {

// Gradients are converted and unscaled, and weights rounded, a block at a
// time: one loop for all types, and a block of every list stays in L1.
constexpr int64_t kBlock = 1024;

/// 1 / scale if that is exact (a power of two, as loss scales are), else 0.
float exact_inverse(float scale) {
  const bool is_power_of_two = (bits_of(scale) & 0x007FFFFFU) == 0;
  const float inverse = 1 / scale;
  const bool is_normal =
      inverse >= 0x1p-126f && inverse <= 0x1p126f && scale >= 0x1p-126f;
  return is_power_of_two && is_normal ? inverse : 0;
}

struct Grad {
  const float* data;
  float factor;  // times this: the unscaled gradient
};

/// The gradient: in place if it is float already, else in `buffer`.
Grad read_grad(
    const StepTensor& tensor,
    float grad_scale,
    int64_t begin,
    int64_t size,
    float* __restrict buffer) {
  const void* grad = static_cast<const char*>(tensor.grad) +
                     begin * size_in_bytes(tensor.grad_type);
  const float inverse = exact_inverse(grad_scale);
  if (inverse != 0 && tensor.grad_type == ElementType::float32) {
    return {static_cast<const float*>(grad), inverse};
  }
  to_floats(grad, tensor.grad_type, buffer, size);
  if (inverse != 0) {
    return {buffer, inverse};
  }
  for (int64_t i = 0; i < size; ++i) {
    buffer[i] /= grad_scale;
  }
  return {buffer, 1};
}

void write_weight(const StepTensor& tensor, int64_t begin, int64_t size) {
  if (tensor.weight) {
    from_floats(
        tensor.param + begin,
        static_cast<char*>(tensor.weight) +
            begin * size_in_bytes(tensor.weight_type),
        tensor.weight_type,
        size);
  }
}

template <bool kMomentum, bool kFirst, bool kNesterov, bool kL2>
void sgd_block(
    SgdStep step,
    const float* __restrict grad,
    float factor,
    float* __restrict param,
    float* __restrict momentum_buffer,
    int64_t size) {
  step.has_momentum = kMomentum;
  step.is_first = kFirst;
  step.nesterov = kNesterov;
  step.l2 = kL2;
  for (int64_t i = 0; i < size; ++i) {
    sgd_update(
        step,
        grad[i] * factor,
        param[i],
        kMomentum ? momentum_buffer + i : nullptr);
  }
}

using SgdBlock =
    void (*)(SgdStep, const float*, float, float*, float*, int64_t);

template <bool kL2>
SgdBlock select_sgd_block(const SgdStep& step) {
  if (!step.has_momentum) {
    return sgd_block<false, false, false, kL2>;
  }
  if (step.is_first) {
    return step.nesterov ? sgd_block<true, true, true, kL2>
                         : sgd_block<true, true, false, kL2>;
  }
  return step.nesterov ? sgd_block<true, false, true, kL2>
                       : sgd_block<true, false, false, kL2>;
}

void sgd(
    const SgdTensor& tensor,
    const SgdStep& step,
    float grad_scale,
    int64_t begin,
    int64_t end) {
  const SgdBlock block =
      step.l2 ? select_sgd_block<true>(step) : select_sgd_block<false>(step);
  alignas(64) float buffer[kBlock];
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t size = end - i < kBlock ? end - i : kBlock;
    const Grad grad = read_grad(tensor, grad_scale, i, size, buffer);
    block(
        step,
        grad.data,
        grad.factor,
        tensor.param + i,
        step.has_momentum ? tensor.momentum_buffer + i : nullptr,
        size);
    write_weight(tensor, i, size);
  }
}

template <bool kAmsgrad, bool kL2>
void adam_block(
    AdamStep step,
    const float* __restrict grad,
    float factor,
    float* __restrict param,
    float* __restrict exp_avg,
    float* __restrict exp_avg_sq,
    float* __restrict max_exp_avg_sq,
    int64_t size) {
  step.amsgrad = kAmsgrad;
  step.l2 = kL2;
  for (int64_t i = 0; i < size; ++i) {
    adam_update(
        step,
        grad[i] * factor,
        param[i],
        exp_avg[i],
        exp_avg_sq[i],
        kAmsgrad ? max_exp_avg_sq + i : nullptr);
  }
}

void adam(
    const AdamTensor& tensor,
    const AdamStep& step,
    float grad_scale,
    int64_t begin,
    int64_t end) {
  const auto block =
      step.amsgrad
          ? (step.l2 ? adam_block<true, true> : adam_block<true, false>)
          : (step.l2 ? adam_block<false, true> : adam_block<false, false>);
  alignas(64) float buffer[kBlock];
  for (int64_t i = begin; i < end; i += kBlock) {
    const int64_t size = end - i < kBlock ? end - i : kBlock;
    const Grad grad = read_grad(tensor, grad_scale, i, size, buffer);
    block(
        step,
        grad.data,
        grad.factor,
        tensor.param + i,
        tensor.exp_avg + i,
        tensor.exp_avg_sq + i,
        step.amsgrad ? tensor.max_exp_avg_sq + i : nullptr,
        size);
    write_weight(tensor, i, size);
  }
}

}  // namespace

namespace TERN_CPU_ISA {
extern const FusedOptimizerLoops fused_optimizer_loops = {&sgd, &adam};
}

}  // namespace tern
