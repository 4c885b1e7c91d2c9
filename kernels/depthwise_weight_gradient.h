#pragma once

#include <torch/types.h>

#include "tern/kernels/conv_weight_gradient.h"

namespace tern {

/// Whether `depthwise_weight_gradient` can compute this gradient, and faster
/// than oneDNN: on a CPU, for bfloat16 that is stored channels last.
/// \param images    [N, C, H, W], what the convolution was given.
/// \param gradient  [N, C, H', W'], of what it gave.
bool depthwise_weight_gradient_pays(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    at::IntArrayRef kernel_size);

/// The gradient of the weight of a convolution with one filter for each
/// channel. Sums are in fp32 and rounded once.
/// \param images    [N, C, H, W] kBFloat16; C is a multiple of 16.
/// \param gradient  [N, C, H', W'] kBFloat16.
/// \return [C, 1, *kernel_size] kBFloat16.
torch::Tensor depthwise_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry);

}  // namespace tern
