#pragma once

#include <cstdint>

namespace tern {

/// The size of an image, in the order in which tensors have it.
struct ImageSize {
  int64_t height = 0, width = 0;

  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};

}  // namespace tern
