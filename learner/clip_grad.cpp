#include "tern/learner/clip_grad.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace tern {

torch::Tensor joint_norm(const Tensors& tensors) {
  if (tensors.empty()) return torch::zeros({});
  Tensors norms;
  norms.reserve(tensors.size());
  // A half's square overflows long before the half does: sum in float.
  for (const torch::Tensor& tensor : tensors) {
    norms.push_back(
        at::linalg_vector_norm(tensor, 2, {}, false, torch::kFloat));
  }
  return at::linalg_vector_norm(torch::stack(norms));
}

torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm) {
  // 1e-6 as PyTorch: a norm of 0 must not divide.
  return (max_norm / (norm + 1e-6)).clamp_max(1.0);
}

torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm) {
  TORCH_CHECK_VALUE(
      max_norm > 0,
      fmt::format(
          "[clip_grad_norm_] max_norm is {}; expected a number > 0.",
          max_norm));
  const torch::NoGradGuard no_grad;
  Tensors grads;
  for (const torch::Tensor& parameter : parameters) {
    if (parameter.grad().defined()) grads.push_back(parameter.grad());
  }
  const torch::Tensor norm = joint_norm(grads);
  if (!grads.empty()) {
    torch::_foreach_mul_(grads, clip_coefficient(norm, max_norm));
  }
  return norm;
}

}  // namespace tern
