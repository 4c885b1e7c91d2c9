#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/plots/svg.h"

namespace tern {

/// Red, green, blue.
using Rgb = std::array<uint8_t, 3>;

inline constexpr Rgb kTextColor = {34, 34, 34}, kRightColor = {0, 120, 60},
                     kWrongColor = {200, 30, 30};

/// Font sizes in pixels.
inline constexpr double kTextSize = 12, kTitleSize = 14;

/// A white page to draw on, in RGB like all pixels in Tern.
class Page {
 public:
  Page(int64_t height, int64_t width) : height_(height), width_(width) {}

  void text(const SvgText& text, Rgb color = kTextColor);
  void box(int64_t x, int64_t y, int64_t width, int64_t height, Rgb color);
  /// Draws an image on top of all text and boxes.
  /// \param image  [H, W, 1 or 3] kByte. Resized to the given size: averaged if
  ///               that size is smaller than the image, with visible square
  ///               pixels if it is at least three times larger.
  void image(
      const torch::Tensor& image,
      int64_t x,
      int64_t y,
      int64_t width,
      int64_t height);

  // Marks are drawn above all images, in the order of the calls.

  /// Draws the outline of a box.
  void frame(double x, double y, double width, double height, Rgb color);
  /// Draws a point with a white rim.
  void dot(double x, double y, Rgb color);
  /// Writes a name on a strip of this color whose lower left corner is (x, y).
  void tag(double x, double y, const std::string& name, Rgb color);

  /// Renders the page: [H, W, 3] kByte.
  /// \param scale  Pixels per unit of height and width.
  torch::Tensor pixels(int64_t scale = 1) const;
  /// Writes the page as an SVG file, without its images and marks.
  /// \throws IoError
  void save_svg(const std::filesystem::path& file) const;

 private:
  struct Image {
    torch::Tensor pixels;
    int64_t x, y, width, height;
  };
  /// A frame, dot or tag, drawn above the images.
  struct Mark {
    enum class Kind { frame, dot, tag } kind;
    double x, y, width, height;
    std::string name;
    Rgb color;
  };
  std::string svg() const;

  int64_t height_, width_;
  std::string elements_;  // text and boxes as SVG
  std::vector<Image> images_;
  std::vector<Mark> marks_;
};

}  // namespace tern
