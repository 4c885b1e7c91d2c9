#pragma once

#include <torch/types.h>

#include "tern/kernels/conv_weight_gradient.h"

namespace tern {

/// True if `depthwise_weight_gradient` can compute this gradient and is faster
/// than oneDNN: on a CPU, for channels-last bfloat16.
/// \param images    [N, C, H, W], the input of the convolution.
/// \param gradient  [N, C, H', W'], the gradient of its output.
bool depthwise_weight_gradient_pays(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    at::IntArrayRef kernel_size);

/// Computes the weight gradient of a convolution with one filter per channel.
/// Sums are in fp32 and rounded once.
/// \param images    [N, C, H, W] kBFloat16; C is a multiple of 16.
/// \param gradient  [N, C, H', W'] kBFloat16.
/// \return [C, 1, *kernel_size] kBFloat16.
torch::Tensor depthwise_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry);

}  // namespace tern
