#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

// Operations on batches of images on their device.

/// [N, H, W, C] kByte -> [N, C, H, W] kFloat in 0..1, channels-last.
torch::Tensor from_bytes(const torch::Tensor& bytes);

/// Resizes images bilinearly to cover `size` and crops the center.
/// \param x  [N, C, H, W] floating.
torch::Tensor cover_batch(const torch::Tensor& x, ImageSize size);

/// Samples each image once, bilinearly.
/// \param x         [N, C, H, W] floating.
/// \param matrices  N, from the pixels of the result to those of the image.
torch::Tensor warp_batch(
    const torch::Tensor& x,
    const std::vector<Matrix3>& matrices,
    Padding padding);

/// Averages over squares of `size` pixels, at the edges over their visible
/// part.
/// \param x  [N, C, H, W] floating.
torch::Tensor box_blur_batch(const torch::Tensor& x, int64_t size);

/// Color jitter of one image, as torchvision's adjust_ functions in this
/// order.
struct ColorChange {
  /// Factors; 1 changes nothing.
  float brightness = 1, contrast = 1, saturation = 1;
  /// Rotates the colors by this fraction of the circle about the gray axis of
  /// YUV, so that a change is one matrix per image.
  float hue = 0;
};

/// \param x  [N, 3, H, W] floating in 0..1, and so is the result.
torch::Tensor change_colors(
    const torch::Tensor& x,
    const std::vector<ColorChange>& changes);

}  // namespace tern
