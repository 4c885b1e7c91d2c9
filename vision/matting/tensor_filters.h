#pragma once

#include <vector>

#include <torch/types.h>

#include "tern/kernels/warp_image.h"
#include "tern/vision/image_size.h"

namespace tern {

// Changes of whole batches of pictures on their device.

/// [N, H, W, C] kByte -> [N, C, H, W] kFloat in 0..1, channels-last.
torch::Tensor from_bytes(const torch::Tensor& bytes);

/// Resizes pictures so that they cover `size`, bilinearly, and cuts it from
/// their middle.
/// \param x  [N, C, H, W] floating.
torch::Tensor cover_batch(const torch::Tensor& x, ImageSize size);

/// Samples each picture once, bilinearly.
/// \param x         [N, C, H, W] floating.
/// \param matrices  N, from the pixels of the result to those of the picture.
torch::Tensor warp_batch(
    const torch::Tensor& x,
    const std::vector<Matrix3>& matrices,
    Padding padding);

/// Averages over squares of `size` pixels, and at the edges over what there is
/// of them.
/// \param x  [N, C, H, W] floating.
torch::Tensor box_blur_batch(const torch::Tensor& x, int64_t size);

/// What a colour jitter does to one picture, as torchvision's adjust_
/// functions in this order.
struct ColorChange {
  /// Factors; 1 changes nothing.
  float brightness = 1, contrast = 1, saturation = 1;
  /// Turns the colours, by this share of the circle, about the grey axis of
  /// YUV; so a change of colours is one matrix for each picture.
  float hue = 0;
};

/// \param x  [N, 3, H, W] floating in 0..1, and so is the result.
torch::Tensor change_colors(
    const torch::Tensor& x,
    const std::vector<ColorChange>& changes);

}  // namespace tern
