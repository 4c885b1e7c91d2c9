#include "tern/vision/decode/sample_pixels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tern/vision/decode/image_file.h"

namespace tern {

namespace {

using Points = std::array<std::pair<double, double>, 5>;

/// Returns the corners of the result and its center.
Points marks_of(ImageSize result) {
  const auto width = static_cast<double>(result.width);
  const auto height = static_cast<double>(result.height);
  return {
      {{0, 0},
       {width, 0},
       {0, height},
       {width, height},
       {width / 2, height / 2}}};
}

double depth(const Matrix3& matrix, double x, double y) {
  const auto& m = matrix.values;
  return m[6] * x + m[7] * y + m[8];
}

struct Span {
  double low, high;
};

/// Returns the first pixel and the number of pixels of a span, extended by
/// `around` pixels and a margin for neighbors and rounding on each side.
std::pair<int64_t, int64_t>
seen(Span span, double around, int64_t size, Padding padding) {
  constexpr double kMargin = 2;
  const auto length = static_cast<double>(size);
  double low = span.low - around - kMargin, high = span.high + around + kMargin;
  if (!(low > -1e9 && high < 1e9)) return {0, size};
  if (padding == Padding::reflection) {
    const double below = -low, above = high - length;
    if (below > length || above > length) return {0, size};
    if (below > 0) high = std::max(high, below);
    if (above > 0) low = std::min(low, length - above);
  }
  const auto first =
      static_cast<int64_t>(std::floor(std::clamp(low, 0.0, length - 1)));
  const auto last =
      static_cast<int64_t>(std::ceil(std::clamp(high, 0.0, length)));
  return {first, std::max(last - first, int64_t{1})};
}

}  // namespace

ImageSize shrink_factors(const Matrix3& matrix, ImageSize result) {
  const auto& m = matrix.values;
  double across = 1e6, down = 1e6;
  for (const auto& [x, y] : marks_of(result)) {
    const double w = depth(matrix, x, y);
    if (w <= 0) return {1, 1};
    const auto [u, v] = matrix.apply(x, y);
    // The derivatives of u and v along the axes of the result.
    across = std::min(across, std::hypot(m[0] - u * m[6], m[1] - u * m[7]) / w);
    down = std::min(down, std::hypot(m[3] - v * m[6], m[4] - v * m[7]) / w);
  }
  // Adds a little, so that rounding errors do not turn 2 into 1.
  const auto whole = [](double factor) {
    return std::max<int64_t>(1, static_cast<int64_t>(factor + 1e-6));
  };
  return {whole(down), whole(across)};
}

ImageRegion seen_region(const Warp& warp, ImageSize result, ImageSize size) {
  Span x{1e30, -1e30}, y{1e30, -1e30};
  for (const auto& [column, row] : marks_of(result)) {
    if (depth(warp.matrix, column, row) <= 0) {
      return {0, 0, size.height, size.width};
    }
    const auto [u, v] = warp.matrix.apply(column, row);
    x = {std::min(x.low, u), std::max(x.high, u)};
    y = {std::min(y.low, v), std::max(y.high, v)};
  }
  double across = warp.jitter_x, down = warp.jitter_y;
  if (is_antialiased(warp)) {  // one pixel of the result on each side
    across = (x.high - x.low) / static_cast<double>(result.width);
    down = (y.high - y.low) / static_cast<double>(result.height);
  }
  const auto [left, width] = seen(x, across, size.width, warp.padding);
  const auto [top, height] = seen(y, down, size.height, warp.padding);
  return {top, left, height, width};
}

Warp shrunk(const Warp& warp, ImageSize factors, ImageRegion offset) {
  const auto across = static_cast<double>(factors.width);
  const auto down = static_cast<double>(factors.height);
  Warp result = warp;
  result.matrix = Matrix3::translation(
                      -static_cast<double>(offset.left),
                      -static_cast<double>(offset.top)) *
                  Matrix3::scaling(1 / across, 1 / down) * warp.matrix;
  result.jitter_x /= static_cast<float>(factors.width);
  result.jitter_y /= static_cast<float>(factors.height);
  return result;
}

void sample_pixels(
    const PixelView& source,
    const Warp& warp,
    ImageSize size,
    uint8_t* out) {
  if (is_antialiased(warp)) {
    return resize_image(source, warp, size.height, size.width, out);
  }
  static thread_local ScratchBuffer buffer;
  const ImageSize factors = warp.sampling == Sampling::nearest
                                ? ImageSize{1, 1}
                                : shrink_factors(warp.matrix, size);
  if (factors.height == 1 && factors.width == 1) {
    warp_image(source, warp, size.height, size.width, out);
    return;
  }
  // Averages only the visible part of a large source.
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
  uint8_t* averaged = buffer.get(blocks.height * blocks.stride);
  // Whole blocks, unless the source ends within a block.
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
