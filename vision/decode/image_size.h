#pragma once

#include <cstdint>
#include <utility>

namespace tern {

/// Height and width of an image, in the order of tensor dimensions. One number
/// means a square: `.size = 128` is `.size = ImageSize{128, 128}`.
struct ImageSize {
  int64_t height = 0, width = 0;

  constexpr ImageSize() = default;
  constexpr ImageSize(int64_t side)  // NOLINT: implicit on purpose
      : height(side), width(side) {}
  constexpr ImageSize(int64_t height, int64_t width)
      : height(height), width(width) {}

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// Returns how many pixels of an image of size `a` one result pixel covers,
/// vertically and horizontally, when the image is stretched to size `b`.
inline std::pair<double, double> pixels_per_pixel(ImageSize a, ImageSize b) {
  return {
      static_cast<double>(a.height) / static_cast<double>(b.height),
      static_cast<double>(a.width) / static_cast<double>(b.width)};
}

/// A rectangle of an image, in pixels.
struct ImageRegion {
  int64_t top = 0, left = 0, height = 0, width = 0;

  friend bool operator==(const ImageRegion&, const ImageRegion&) = default;
};

}  // namespace tern
