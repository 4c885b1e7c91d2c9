#include "tern/callbacks/gradient_penalty.h"

#include <cmath>

#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/precision/grad_scaler.h"

namespace tern {

GradientPenalty::GradientPenalty(double weight) : weight_(weight) {
  TORCH_CHECK_VALUE(
      std::isfinite(weight),
      fmt::format(
          "[GradientPenalty] weight is {}; expected a finite number.",
          weight));
}

void GradientPenalty::on_backward_begin(Learner& learn) {
  TrainState& state = learn.state();
  Tensors parameters;
  for (const ModelTensor& parameter : learn.model().parameters()) {
    if (parameter.tensor.requires_grad()) {
      parameters.push_back(parameter.tensor);
    }
  }
  // Scaled on the way back, so that 16-bit gradients do not underflow; the
  // scale is divided by on the device, which get_scale() would wait for.
  torch::Tensor loss = state.loss_grad, scale;
  if (state.scaler) {
    scale = state.scaler->scale(torch::ones({}, loss.options()));
    loss = loss * scale;
  }
  const Tensors gradients = torch::autograd::grad(
      {loss},
      parameters,
      /*grad_outputs=*/{},
      /*retain_graph=*/true,
      /*create_graph=*/true,
      /*allow_unused=*/true);
  // vector_norm's gradient at 0 is 0, where that of sqrt would be infinite.
  Tensors norms;
  for (const torch::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    const torch::Tensor fp32 = gradient.to(torch::kFloat);
    norms.push_back(
        torch::linalg_vector_norm(scale.defined() ? fp32 / scale : fp32, 2));
  }
  state.loss_grad = state.loss_grad +
                    weight_ * torch::linalg_vector_norm(torch::stack(norms), 2);
}

}  // namespace tern
