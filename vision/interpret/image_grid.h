#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/interpret/drawing.h"

namespace tern {

/// Text below an image, in UTF-8. Wrapped to at most three lines.
struct CaptionLine {
  std::string text;
  Rgb color = kTextColor;
};

/// A box to draw over an image, in pixels of the image, with a name at its
/// upper left corner.
struct MarkedBox {
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  std::string name = {};
  Rgb color = kTextColor;
};

/// A point to draw over an image, in pixels of the image.
struct MarkedPoint {
  double x = 0, y = 0;
  Rgb color = kTextColor;
};

struct Picture {
  torch::Tensor image;  // as for save_image
  std::vector<CaptionLine> caption = {};
  std::vector<MarkedBox> boxes = {};
  std::vector<MarkedPoint> points = {};
};

struct ImageGridOptions {
  std::string title = {};
  /// Number of columns; 0 chooses a number that makes the plot about square.
  int64_t columns = 0;
  /// Side of the square that each image is fitted into, in pixels.
  int64_t tile = 176;
  /// Names below the images, each with a square in its color.
  std::vector<CaptionLine> legend = {};
};

/// Plots images with captions in a grid on a white page.
///
/// \return [H, W, 3] kByte.
/// \throws c10::ValueError without images, or for a tile below 16 pixels.
torch::Tensor image_grid(
    const std::vector<Picture>& pictures,
    const ImageGridOptions& options = {});

/// Returns distinct colors for classes, [classes, 3] kByte.
torch::Tensor mask_colors(int64_t classes);
/// Returns the color of one class in `mask_colors`.
Rgb class_color(int64_t index);

/// Blends the colors of a mask's classes into an image: [H, W, 3] kByte.
///
/// \param image    [H, W, 1 or 3] kByte.
/// \param mask     Integer class indices [h, w]; stretched to the image.
/// \param classes  Number of classes. Pixels with other indices keep their
///                 color.
torch::Tensor with_mask(
    const torch::Tensor& image,
    const torch::Tensor& mask,
    int64_t classes = 256);

/// Writes an image as a PNG file, replacing an existing file. Corresponds to
/// torchvision.utils.save_image.
///
/// \param image  [H, W] or [1 or 3, H, W] floating, clamped to 0..1; or [H, W]
///               or [H, W, 1 or 3] kByte. Any device.
/// \throws c10::ValueError for any other shape or dtype, or a suffix other than
///         .png; IoError.
void save_image(const std::filesystem::path& file, const torch::Tensor& image);

/// Encodes an image as `save_image` does and returns the bytes of the PNG file.
/// \param who  Name of the caller, for error messages.
std::vector<uint8_t> png_of(
    const torch::Tensor& image,
    const std::string& who = "[png_of]");
/// Converts an image as `save_image` does: [H, W, 1 or 3] kByte on the CPU.
torch::Tensor image_bytes(const torch::Tensor& image, const std::string& who);

}  // namespace tern
