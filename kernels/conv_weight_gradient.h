#pragma once

#include <torch/types.h>

namespace tern {

/// Where a convolution looks: two numbers each, of height and width.
struct ConvGeometry {
  at::IntArrayRef kernel_size, stride, padding, dilation;
};

/// Whether `conv_weight_gradient` can compute this gradient, and faster than
/// oneDNN: on processors with AMX, for images in bfloat16 that are stored
/// channels last, and weights that are not small.
/// \param images    [N, C, H, W], what the convolution was given.
/// \param gradient  [N, K, H', W'], of what it gave.
bool conv_weight_gradient_pays(
    const torch::Tensor& images,
    const torch::Tensor& gradient);

/// The gradient of a convolution's weight, by AMX's products of matrices. Sums
/// are in fp32 and rounded once. The convolution has one group, the processor AMX.
/// \param images    [N, C, H, W] kBFloat16; C is a multiple of 16.
/// \param gradient  [N, K, H', W'] kBFloat16.
/// \return [K, C, *kernel_size] kBFloat16, channels last.
torch::Tensor conv_weight_gradient(
    const torch::Tensor& images,
    const torch::Tensor& gradient,
    const ConvGeometry& geometry);

}  // namespace tern
