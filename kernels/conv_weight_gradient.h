#pragma once

#include <torch/types.h>

namespace tern {

/// Geometry of a convolution: two numbers each, for height and width.
struct ConvGeometry {
  at::IntArrayRef kernel_size, stride, padding, dilation;
};

/// True if `conv_weight_gradient` can compute this gradient and is faster than
/// oneDNN: on processors with AMX, for channels-last images in bfloat16 and
/// weights that are not small.
/// \param images    [N, C, H, W], the input of the convolution.
/// \param gradient  [N, K, H', W'], the gradient of its output.
bool conv_weight_gradient_pays(
    const torch::Tensor& images,
    const torch::Tensor& gradient);

/// Computes the gradient of a convolution's weight with AMX matrix products.
/// Sums are in fp32 and rounded once. The convolution must have one group, and
/// the processor must have AMX.
/// \param images    [N, C, H, W] kBFloat16; C is a multiple of 16.
/// \param gradient  [N, K, H', W'] kBFloat16.
/// \return [K, C, *kernel_size] kBFloat16, channels last.
torch::Tensor conv_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry);

}  // namespace tern
