#pragma once

#include <optional>

#include <torch/types.h>

namespace tern {

// A convolution of 3 x 3 pixels with stride 1 by Winograd's F(4x4, 3x3) (Lavin
// and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016): for
// each 4 x 4 pixels of the result and each pair of channels 36 products, where
// the definition has 144. oneDNN computes them, as 36 convolutions of 1 x 1
// pixel.
//
// Rounding is some ten times the definition's: within 2e-5 of the largest
// output. What is infinite or NaN makes NaN of all 4 x 4 pixels that see it.

/// Whether `winograd_conv2d` is faster than oneDNN's own convolution of images
/// [N, C, H, W] with a weight [K, C, 3, 3]: on x86 with AVX2, with C and K
/// multiples of 16, for enough pixels to be worth four times the weight.
/// \param padding  Of height and width.
bool winograd_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef padding);

/// The weight for `winograd_conv2d`: 36 numbers for each 3 x 3, in the order
/// that suits oneDNN for images of these sizes.
/// \param weight  [K, C, 3, 3] kFloat on the CPU.
torch::Tensor winograd_weight(
    const torch::Tensor& weight,
    at::IntArrayRef images,
    at::IntArrayRef padding);

/// `conv2d(images, weight, bias, 1, padding) + other`, and relu of it.
/// \param images  [N, C, H, W] kFloat.
/// \param weight  From `winograd_weight`; any N, H and W.
/// \param other  Of the result's size.
/// \return [N, K, H + 2 * padding[0] - 2, W + 2 * padding[1] - 2] kFloat,
///     channels last.
torch::Tensor winograd_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias,
    at::IntArrayRef padding,
    const std::optional<torch::Tensor>& other,
    bool relu);

}  // namespace tern
