#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

// Operations on batches of images, computed on the device of the images.

/// Converts [N, H, W, C] kByte to [N, C, H, W] kFloat in 0..1, channels-last.
torch::Tensor from_bytes(const torch::Tensor& bytes);

/// Resizes images bilinearly to cover `size` and center-crops them.
/// \param x  [N, C, H, W] floating-point.
torch::Tensor cover_batch(const torch::Tensor& x, ImageSize size);

/// Warps each image by a separate matrix, with bilinear sampling.
/// \param x         [N, C, H, W] floating-point.
/// \param matrices  One per image, from pixels of the result to pixels of the
///                  image.
torch::Tensor warp_batch(
    const torch::Tensor& x,
    const std::vector<Matrix3>& matrices,
    Padding padding);

/// Box-blurs images: each pixel becomes the mean of a square of `size` pixels
/// per side. At the edges, the mean is over the part inside the image.
/// \param x  [N, C, H, W] floating-point.
torch::Tensor box_blur_batch(const torch::Tensor& x, int64_t size);

/// Color jitter of one image, like torchvision's adjust_ functions in the order
/// below.
struct ColorChange {
  /// Factors; 1 changes nothing.
  float brightness = 1, contrast = 1, saturation = 1;
  /// Rotates the colors by this fraction of the circle about the gray axis of
  /// YUV. This is linear, unlike torchvision's rotation in HSV, so that all
  /// changes of an image combine into one matrix.
  float hue = 0;
};

/// Applies a separate change to each image.
/// \param x  [N, 3, H, W] floating in 0..1.
/// \return   Same shape, in 0..1
torch::Tensor change_colors(
    const torch::Tensor& x,
    const std::vector<ColorChange>& changes);

}  // namespace tern
