#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern {

/// Returns the gradients of all parameters that have a gradient.
Tensors gradients_of(const Tensors& parameters);

/// Returns the joint L2 norm of all tensors; does not synchronize.
/// \param tensors  Defined, floating-point or complex, on one device; may be
///                 empty.
/// \return 0-dim on their device, kFloat, or kDouble if one of them has double
///         precision; infinite or NaN if an element is.
/// \throws c10::ValueError for a sparse tensor.
torch::Tensor joint_norm(const Tensors& tensors);

/// Scales the gradients of `parameters` in place so that their joint L2 norm is
/// at most `max_norm`. Like torch.nn.utils.clip_grad_norm_, but the norm stays
/// on the device, whereas LibTorch's version synchronizes on every call.
///
/// For a custom training loop, after `GradScaler::unscale_`. In a Learner use
/// GradientClip: under a loss scale, the parameters have no gradients while
/// callbacks run.
///
/// \param parameters  Parameters without a gradient are skipped.
/// \param max_norm  > 0.
/// \return the norm before clipping, like `joint_norm`.
/// \throws c10::ValueError for a sparse gradient.
torch::Tensor clip_grad_norm_(const Tensors& parameters, double max_norm);

/// The same for all parameters of all groups of an optimizer.
torch::Tensor clip_grad_norm_(
    torch::optim::Optimizer& optimizer,
    double max_norm);

/// Clamps every element of the gradients to [-max_value, max_value], in place;
/// NaN stays NaN. Like torch.nn.utils.clip_grad_value_.
///
/// \param max_value  > 0.
/// \throws c10::ValueError for a sparse or complex gradient.
void clip_grad_value_(const Tensors& parameters, double max_value);
void clip_grad_value_(torch::optim::Optimizer& optimizer, double max_value);

/// Returns the factor in (0, 1] that scales a norm to at most `max_norm`, in
/// the norm's dtype.
torch::Tensor clip_coefficient(const torch::Tensor& norm, double max_norm);

}  // namespace tern
