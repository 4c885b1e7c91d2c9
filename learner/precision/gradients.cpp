#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/loop.h"

namespace tern {

std::vector<NamedGradient> Learner::gradients() {
  TORCH_CHECK(
      parts_->has_gradients,
      "[Learner::gradients] there are no gradients now; call it from a "
      "callback's on_backward_end or on_step.");
  const torch::NoGradGuard no_grad;
  const bool is_partial = parts_->state.skip_step;
  // Those aside still have their loss scale.
  const bool is_scaled = is_partial && !parts_->gradients_aside.empty();
  torch::Tensor scale;
  if (is_scaled) scale = parts_->precision->loss_scale_record()[0];
  if (is_scaled) loop::set_gradients_aside(*parts_, false);
  if (!is_partial) loop::unscale_gradients(*parts_);
  std::vector<NamedGradient> result;
  for (const ModelTensor& p : parts_->model.parameters()) {
    const torch::Tensor stepped = parts_->stepped_weights
                                      ? parts_->stepped_weights->of(p.tensor)
                                      : p.tensor;
    torch::Tensor gradient = stepped.grad();
    if (!gradient.defined() && is_partial) gradient = p.tensor.grad();
    if (!gradient.defined()) continue;
    if (is_partial) {
      gradient = gradient.to(torch::kFloat, false, /*copy=*/true);
      if (scale.defined()) gradient /= scale.to(gradient.device());
    }
    result.push_back({p.name, gradient});
  }
  if (is_scaled) loop::set_gradients_aside(*parts_, true);
  return result;
}

}  // namespace tern
