#pragma once

#include <torch/types.h>

namespace tern {

/// Multiplies every gradient by `inv_scale` in place and notes whether one of
/// them holds an infinity or a NaN. Never waits for the device.
///
/// \param grads      Dense, defined; kFloat, kDouble, kHalf or kBFloat16, any
///                   mix, all on one device. An empty list is allowed.
/// \param inv_scale  0-dim (or one element) kFloat on that device.
/// \param found_inf  0-dim (or one element) kFloat on that device; becomes 1
///                   when an element of a gradient is not finite *before* the
///                   multiplication, else keeps its value.
/// \throws c10::ValueError if a type, device or shape differs from the above.
///
/// As `torch._amp_foreach_non_finite_check_and_unscale_`: gradients are
/// multiplied also when one of them is not finite; `inv_scale == 1` leaves
/// them untouched.
void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf);

/// The check alone: reads each gradient once and writes none.
/// Arguments and errors as for `unscale_and_check_`.
void check_finite(at::TensorList grads, torch::Tensor found_inf);

}  // namespace tern
