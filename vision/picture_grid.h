#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/rgb.h"

namespace tern {

/// A line of text under a picture; too long a one is cut in its middle.
struct CaptionLine {
  std::string text;
  Rgb color = kTextColor;
};

struct Picture {
  torch::Tensor image;  // [H, W, 1 or 3] kByte, CPU
  std::vector<CaptionLine> caption;
};

struct PictureGridOptions {
  std::string title = {};
  /// 0: as many as make it about as wide as high.
  int64_t columns = 0;
  /// Height and width, in pixels, of the square that each picture fits into.
  int64_t tile = 176;
};

/// Pictures side by side with their captions on a white page, row by row.
/// Characters other than ASCII become "?", for OpenCV has no others.
///
/// \return [H, W, 3] kByte.
/// \throws c10::ValueError for no pictures, or a tile below 16 pixels.
torch::Tensor picture_grid(
    const std::vector<Picture>& pictures,
    const PictureGridOptions& options = {});

/// Returns a distinct colour for each class, [classes, 3] kByte.
torch::Tensor mask_colours(int64_t classes);

/// Blends the colours of the classes into an image: [H, W, 3] kByte.
///
/// \param image    [H, W, 1 or 3] kByte.
/// \param mask     Class indices, integers of [h, w]; stretched to the image.
/// \param classes  Pixels with other indices keep their colour.
torch::Tensor with_mask(
    const torch::Tensor& image,
    const torch::Tensor& mask,
    int64_t classes = 256);

}  // namespace tern
