#pragma once

#include <cstdint>

namespace tern {

/// The size of an image, in the order in which tensors have it.
struct ImageSize {
  int64_t height = 0, width = 0;

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

/// A rectangle of an image, in pixels.
struct ImageRegion {
  int64_t top = 0, left = 0, height = 0, width = 0;

  friend bool operator==(const ImageRegion&, const ImageRegion&) = default;
};

}  // namespace tern
