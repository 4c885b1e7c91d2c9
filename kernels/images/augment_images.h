#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/kernels/images/warp_image.h"
#include "tern/kernels/kernel_args.h"

namespace tern {

/// The augmentation of one image of a batch; the steps are applied in this
/// order.
struct ImageChange {
  /// Maps the result to the source image, which has the same size; always
  /// bilinear.
  Warp warp = {};
  /// For three channels: x becomes the sigmoid of `scale * mix + shift`. The
  /// mix interpolates between the gray value of the pixel's logits (saturation
  /// 0) and the logit of x (saturation 1). Then the hue is rotated by the
  /// fraction `hue` of the color circle.
  bool mixes_colors = false;
  float scale = 1, shift = 0, saturation = 1, hue = 0;
  /// Lookup table applied to every byte.
  std::array<uint8_t, 256> table = identity();
  std::vector<PaintedRectangle> rectangles = {};

  static constexpr std::array<uint8_t, 256> identity() {
    std::array<uint8_t, 256> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<uint8_t>(i);
    }
    return bytes;
  }
};

/// Augments each image of a batch separately and normalizes it. On a GPU this
/// is one kernel launch that reads and writes the batch once, and one
/// asynchronous copy of `changes`.
///
/// \param images   [N, H, W, 1 or 3] kByte, contiguous.
/// \param changes  One per image.
/// \param mean, stddev  As for normalize_images; not read for kByte.
/// \param dtype    kFloat, kHalf, kBFloat16, or kByte to skip normalization.
/// \return         [N, C, H, W] of `dtype`, channels-last, or [N, H, W, C]
///                 kByte; same device.
/// \throws c10::ValueError if a shape, dtype or count differs from the above.
torch::Tensor augment_images(
    const torch::Tensor& images,
    const std::vector<ImageChange>& changes,
    c10::ArrayRef<double> mean,
    c10::ArrayRef<double> stddev,
    torch::ScalarType dtype);

}  // namespace tern
