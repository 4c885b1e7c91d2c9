#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>

#include <torch/types.h>

namespace tern {

/// Red, green, blue.
using Rgb = std::array<uint8_t, 3>;

inline constexpr Rgb kTextColor = {34, 34, 34}, kRightColor = {0, 120, 60},
                     kWrongColor = {200, 30, 30};

/// Where the point of a text lies: at the left end of its base line, in the
/// middle, at the right end; or in the middle of a text that reads upwards.
enum class Anchor { left, middle, right, upwards };

/// A white page to draw on; in RGB, like all of Tern's pixels.
class Page {
 public:
  Page(int64_t height, int64_t width);

  /// \param size  Height of a capital letter in pixels.
  void text(
      const std::string& text,
      int64_t x,
      int64_t y,
      Anchor anchor = Anchor::left,
      double size = kTextSize,
      Rgb color = kTextColor);
  void box(int64_t x, int64_t y, int64_t width, int64_t height, Rgb color);
  /// \param image  [H, W, 1 or 3] kByte; stretched to the given size: averaged
  ///               where it shrinks, pixels as squares where it grows by three
  ///               or more.
  void image(
      const torch::Tensor& image,
      int64_t x,
      int64_t y,
      int64_t width,
      int64_t height);

  /// The page, [H, W, 3] kByte.
  const torch::Tensor& pixels() const { return pixels_; }
  /// Writes the page as an SVG file, without its images. \throws IoError.
  void save_svg(const std::filesystem::path& file) const;

  static constexpr double kTextSize = 9;
  static int64_t text_width(const std::string& text, double size = kTextSize);

 private:
  torch::Tensor pixels_;
  std::string svg_;  // the elements of texts and boxes
};

/// `text` in ASCII, shortened in the middle to at most `width` pixels.
std::string fit_text(const std::string& text, int64_t width);

}  // namespace tern
