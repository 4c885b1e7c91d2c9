#pragma once

#include <cstdint>

namespace tern {

/// Height and width of an image, in the order of tensors. One number is a
/// square: `.size = 128` is `.size = ImageSize{128, 128}`.
struct ImageSize {
  int64_t height = 0, width = 0;

  constexpr ImageSize() = default;
  constexpr ImageSize(int64_t side)  // NOLINT: implicit on purpose
      : height(side), width(side) {}
  constexpr ImageSize(int64_t height, int64_t width)
      : height(height), width(width) {}

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// A rectangle of an image, in pixels.
struct ImageRegion {
  int64_t top = 0, left = 0, height = 0, width = 0;

  friend bool operator==(const ImageRegion&, const ImageRegion&) = default;
};

}  // namespace tern
