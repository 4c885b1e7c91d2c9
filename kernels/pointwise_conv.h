#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/kernels/conv_activation.h"

namespace tern {

// Convolution with a 1 x 1 kernel in fp32, for inference on the CPU: a product
// of the pixels [N * H * W, C] and the weight [C, K], followed by a bias, a sum
// and an activation. A call of oneDNN's convolution through LibTorch takes
// about 35 microseconds whatever its size, which is longer than many layers of
// a small network compute.

/// True if `pointwise_conv2d` is faster than oneDNN's convolution of images
/// [N, C, H, W] with a weight [K, C, 1, 1]: on x86 with AVX2, for layers with
/// at most some 60 million multiplications (30 million with AVX2).
/// \param stride  Of height and width.
bool pointwise_conv_pays(
    at::IntArrayRef images,
    at::IntArrayRef weight,
    at::IntArrayRef stride);

/// Returns weight and bias for `pointwise_conv2d`.
/// \param weight  [K, C, 1, 1] kFloat on the CPU.
/// \param bias    [K] kFloat.
/// \return [ceil(K / 16), 1 + C, 16] kFloat: for every 16 outputs, their bias
///         and the factors of each channel.
torch::Tensor pointwise_weight(
    const torch::Tensor& weight,
    const std::optional<torch::Tensor>& bias);

/// Returns `activation(conv2d(images * gate, weight, bias, stride) + other)`.
/// \param images   [N, C, H, W] kFloat on the CPU.
/// \param weight   From `pointwise_weight`.
/// \param outputs  K.
/// \param stride   Of height and width.
/// \param gate     [N, C, 1, 1] or [1, C, 1, 1] kFloat, a factor of each
///                 channel, as squeeze-and-excitation computes them.
/// \param other    Has the size of the result.
/// \return [N, K, height, width] kFloat, channels last.
torch::Tensor pointwise_conv2d(
    const torch::Tensor& images,
    const torch::Tensor& weight,
    int64_t outputs,
    at::IntArrayRef stride,
    const std::optional<torch::Tensor>& gate,
    const std::optional<torch::Tensor>& other,
    const ConvActivation& activation);

}  // namespace tern
