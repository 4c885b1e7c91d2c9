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
  torch::Tensor scale;
  if (parts_->precision && is_partial) {
    const torch::Tensor record = parts_->precision->loss_scale_record();
    if (record.defined()) scale = record[0];
  } else {
    loop::unscale_gradients(*parts_);
  }
  std::vector<NamedGradient> result;
  for (const ModelTensor& p : parts_->model.parameters()) {
    const torch::Tensor stepped = parts_->stepped_weights && !is_partial
                                      ? parts_->stepped_weights->of(p.tensor)
                                      : p.tensor;
    torch::Tensor gradient = stepped.grad();
    if (!gradient.defined()) continue;
    if (is_partial) {
      gradient = gradient.to(torch::kFloat, false, /*copy=*/true);
      if (scale.defined()) gradient /= scale.to(gradient.device());
    }
    result.push_back({p.name, gradient});
  }
  return result;
}

}  // namespace tern
