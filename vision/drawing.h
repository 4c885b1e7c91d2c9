#pragma once

#include <cstdint>
#include <string>

#include <opencv2/core/mat.hpp>
#include <torch/types.h>

#include "tern/vision/rgb.h"

namespace tern {

/// A white page to draw on; in RGB, like all of Tern's pixels.
class Page {
 public:
  Page(int64_t height, int64_t width);

  /// \param size  Height of a capital letter in pixels.
  /// \param x, y  The left end of the line that the letters stand on.
  void text(
      const std::string& text,
      int64_t x,
      int64_t y,
      Rgb color = kTextColor,
      double size = kTextSize);
  /// The same around its middle, or up to its right end.
  void text_around(
      const std::string& text,
      int64_t x,
      int64_t y,
      Rgb color = kTextColor,
      double size = kTextSize);
  void text_up_to(
      const std::string& text,
      int64_t x,
      int64_t y,
      Rgb color = kTextColor,
      double size = kTextSize);
  /// `text` turned to read upwards, its middle at (x, y).
  void text_upwards(
      const std::string& text,
      int64_t x,
      int64_t y,
      Rgb color = kTextColor,
      double size = kTextSize);
  void box(int64_t x, int64_t y, int64_t width, int64_t height, Rgb color);
  /// \param image  [H, W, 1 or 3] kByte; stretched to the given size.
  void image(
      const torch::Tensor& image,
      int64_t x,
      int64_t y,
      int64_t width,
      int64_t height);

  /// What was drawn, [H, W, 3] kByte.
  torch::Tensor pixels() const;

  static constexpr double kTextSize = 9;
  static int64_t text_width(const std::string& text, double size = kTextSize);

 private:
  cv::Mat page_;
};

/// `text` in ASCII, cut in its middle to at most `width` pixels.
std::string fit_text(const std::string& text, int64_t width);

/// A view of [H, W, C] kByte, contiguous, in the tensor's memory.
cv::Mat mat_of(const torch::Tensor& image);

/// [H, W, C] stretched to another size: averaged where it shrinks, pixels as
/// squares where it grows by three or more.
torch::Tensor
stretched(const torch::Tensor& image, int64_t height, int64_t width);

}  // namespace tern
