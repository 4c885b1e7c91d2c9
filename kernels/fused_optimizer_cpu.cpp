#include <vector>

#include "tern/kernels/fused_optimizer_math.h"
#include "tern/kernels/parallel_for.h"

namespace tern {
namespace {

/// One step of either optimizer: `make_step` gives what a parameter's elements
/// share, `loop` updates a piece of it.
template <class Tensor, class MakeStep, class Loop>
void step_all(
    const Tensor* tensors,
    int64_t count,
    const GradStatePointers& grad_state,
    const MakeStep& make_step,
    Loop loop) {
  if (grad_state.found_inf && *grad_state.found_inf != 0) {
    return;
  }
  const float grad_scale = grad_state.grad_scale ? *grad_state.grad_scale : 1;
  std::vector<int64_t> sizes(count);
  std::vector<decltype(make_step(0.0f))> steps(count);
  for (int64_t i = 0; i < count; ++i) {
    sizes[i] = tensors[i].size;
    // Parameters nearly always march in step: compute the powers once.
    const bool as_before = i > 0 && *tensors[i].step == *tensors[i - 1].step;
    steps[i] = as_before ? steps[i - 1] : make_step(*tensors[i].step);
  }
  parallel_elements(sizes, [&](size_t i, int64_t begin, int64_t end) {
    loop(tensors[i], steps[i], grad_scale, begin, end);
  });
  for (int64_t i = 0; i < count; ++i) {
    *tensors[i].step += 1;
  }
}

}  // namespace

void fused_sgd_cpu(
    const SgdTensor* tensors,
    int64_t count,
    const FusedSgdArgs& args,
    const GradStatePointers& grad_state) {
  step_all(
      tensors,
      count,
      grad_state,
      [&](float steps_done) { return sgd_step(args, steps_done); },
      TERN_SELECT_LOOPS(fused_optimizer_loops).sgd);
}

void fused_adam_cpu(
    const AdamTensor* tensors,
    int64_t count,
    const FusedAdamArgs& args,
    const GradStatePointers& grad_state) {
  step_all(
      tensors,
      count,
      grad_state,
      [&](float steps_done) { return adam_step(args, steps_done); },
      TERN_SELECT_LOOPS(fused_optimizer_loops).adam);
}

}  // namespace tern
