#pragma once

#include <torch/types.h>

namespace tern::reference {

/// `tern::unscale_and_check_` in operations of ATen: its definition, for
/// tests.
void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf);

void check_finite(at::TensorList grads, torch::Tensor found_inf);

}  // namespace tern::reference
