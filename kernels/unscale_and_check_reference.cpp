#include "tern/kernels/unscale_and_check_reference.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

namespace tern::reference {

void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf) {
  check_finite(grads, found_inf);
  for (const at::Tensor& grad : grads) {
    // Halves are multiplied in float and rounded once.
    const auto math_type = at::toOpMathType(grad.scalar_type());
    grad.copy_(grad.to(math_type) * inv_scale.to(math_type));
  }
}

void check_finite(at::TensorList grads, torch::Tensor found_inf) {
  for (const at::Tensor& grad : grads) {
    found_inf.masked_fill_(grad.isfinite().all().logical_not(), 1);
  }
}

}  // namespace tern::reference
