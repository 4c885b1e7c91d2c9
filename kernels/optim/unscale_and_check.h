#pragma once

#include <torch/types.h>

namespace tern {

/// Multiplies every gradient by `inv_scale` in place and checks them for
/// infinities and NaNs. Never synchronizes with the device.
///
/// \param grads      Dense, defined; kFloat, kDouble, kHalf or kBFloat16 in any
///                   mix, all on one device. The list may be empty.
/// \param inv_scale  0-dim (or one element) kFloat on that device.
/// \param found_inf  0-dim (or one element) kFloat on that device; set to 1 if
///                   an element of a gradient is NaN or infinite *before* the
///                   multiplication, otherwise unchanged.
/// \throws c10::ValueError if a dtype, device or shape differs from the above.
///
/// As in `torch._amp_foreach_non_finite_check_and_unscale_`, gradients are
/// multiplied even if one of them is NaN or infinite; `inv_scale == 1` leaves
/// them unchanged.
void unscale_and_check_(
    at::TensorList grads,
    const torch::Tensor& inv_scale,
    torch::Tensor found_inf);

/// Checks gradients for infinities and NaNs without changing them. Arguments
/// and errors as for `unscale_and_check_`.
void check_finite(at::TensorList grads, torch::Tensor found_inf);

}  // namespace tern
