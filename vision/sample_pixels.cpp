#include "tern/vision/sample_pixels.h"

#include <algorithm>

#include "tern/vision/scratch_buffer.h"
#include "tern/vision/seen_region.h"

namespace tern {

void sample_pixels(
    const PixelView& source,
    const Warp& warp,
    ImageSize size,
    uint8_t* out) {
  static thread_local ScratchBuffer buffer;
  const ImageSize factors = warp.sampling == Sampling::nearest
                                ? ImageSize{1, 1}
                                : shrink_factors(warp.matrix, size);
  if (factors.height == 1 && factors.width == 1) {
    warp_image(source, warp, size.height, size.width, out);
    return;
  }
  // Of a large source only what is seen is averaged.
  const ImageRegion seen =
      seen_region(warp, size, {source.height, source.width});
  const int64_t top = seen.top / factors.height;
  const int64_t left = seen.left / factors.width;
  PixelView part = source;
  part.pixels += top * factors.height * source.stride +
                 left * factors.width * source.channels;
  part.height = seen.top + seen.height - top * factors.height;
  part.width = seen.left + seen.width - left * factors.width;
  PixelView blocks = part;
  blocks.height = (part.height + factors.height - 1) / factors.height;
  blocks.width = (part.width + factors.width - 1) / factors.width;
  blocks.stride = blocks.width * source.channels;
  uint8_t* averaged =
      buffer.get(static_cast<size_t>(blocks.height * blocks.stride));
  // Whole blocks, unless the source itself ends within one.
  part.height = std::min(
      blocks.height * factors.height,
      source.height - top * factors.height);
  part.width = std::min(
      blocks.width * factors.width,
      source.width - left * factors.width);
  shrink_by_area(part, factors.height, factors.width, averaged);
  blocks.pixels = averaged;
  blocks.end = averaged + buffer.size();
  warp_image(
      blocks,
      shrunk(warp, factors, {top, left, blocks.height, blocks.width}),
      size.height,
      size.width,
      out);
}

}  // namespace tern
