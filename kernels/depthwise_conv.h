#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/kernels/conv_activation.h"

namespace tern {

// Depthwise convolution (each channel has its own kernel) in fp32, for
// inference on the CPU, followed by a bias and an activation. As in
// pointwise_conv.h, a call takes less time than one of oneDNN's convolution
// through LibTorch.

/// True if `depthwise_conv2d` is faster than oneDNN's convolution of images
/// [N, C, H, W] with a weight [C, 1, h, w]: on x86 with AVX2, for one image and
/// kernels of at most 5 x 5 pixels without dilation.
bool depthwise_conv_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef dilation);

/// Returns weight and bias for `depthwise_conv2d`.
/// \param weight  [C, 1, h, w] kFloat on the CPU.
/// \param bias    [C] kFloat.
/// \return [1 + h * w, C] kFloat: the bias and the factors of each pixel of the
///         kernel.
torch::Tensor depthwise_weight(
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias);

/// Returns `activation(conv2d(images, weight, bias, stride, padding))` with one
/// group per channel.
/// \param images  [N, C, H, W] kFloat, C at least 16.
/// \param weight  From `depthwise_weight`.
/// \param kernel_size, stride, padding  Of height and width.
/// \return [N, C, height, width] kFloat, channels last.
torch::Tensor depthwise_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    at::IntArrayRef kernel_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    const ConvActivation& activation);

}  // namespace tern
