#pragma once

#include <optional>

#include <torch/types.h>

namespace tern {

// Convolution with a 3 x 3 kernel and stride 1 by Winograd's F(4x4, 3x3) (Lavin
// and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016). For
// each block of 4 x 4 output pixels and each pair of channels it needs 36
// products; direct convolution needs 144. oneDNN computes them as 36
// convolutions of 1 x 1 pixel.
//
// The rounding error is about ten times that of direct convolution: within 2e-5
// of the largest output. An infinite or NaN input makes all pixels of the 4 x 4
// output blocks that depend on it NaN.

/// True if `winograd_conv2d` is faster than oneDNN's own convolution of images
/// [N, C, H, W] with a weight [K, C, 3, 3]: on x86 with AVX2, with C and K
/// multiples of 16, and with enough pixels to justify a weight four times as
/// large.
/// \param padding  Of height and width.
bool winograd_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef padding);

/// Returns the weight for `winograd_conv2d`: 36 numbers for each 3 x 3 kernel,
/// in oneDNN's preferred layout for images of these sizes.
/// \param weight  [K, C, 3, 3] kFloat on the CPU.
torch::Tensor winograd_weight(
    const torch::Tensor& weight,
    at::IntArrayRef images,
    at::IntArrayRef padding);

/// Returns `conv2d(images, weight, bias, 1, padding) + other`, with `relu`
/// applied if set.
/// \param images  [N, C, H, W] kFloat.
/// \param weight  From `winograd_weight`; works for any N, H and W.
/// \param other   Has the size of the result.
/// \return [N, K, H + 2 * padding[0] - 2, W + 2 * padding[1] - 2] kFloat,
///         channels last.
torch::Tensor winograd_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias,
    at::IntArrayRef padding,
    const std::optional<torch::Tensor>& other,
    bool relu);

}  // namespace tern
