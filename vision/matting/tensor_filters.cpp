#include "tern/vision/matting/tensor_filters.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "tern/vision/transforms/augment_batch.h"

namespace tern {
namespace {

using Color = std::array<float, 3>;

constexpr Color kGray = {0.299f, 0.587f, 0.114f};

/// Changes saturation and hue of a color. Both keep its gray value Y and are
/// linear in U and V.
Color changed_chroma(const Color& rgb, const ColorChange& change) {
  constexpr float kU = 0.492f, kV = 0.877f;  // of B - Y and R - Y
  constexpr float kTurn = 2 * 3.14159265358979f;
  const float y = kGray[0] * rgb[0] + kGray[1] * rgb[1] + kGray[2] * rgb[2];
  const float u = kU * (rgb[2] - y), v = kV * (rgb[0] - y);
  const float c = change.saturation * std::cos(kTurn * change.hue);
  const float s = change.saturation * std::sin(kTurn * change.hue);
  const float r = y + (s * u + c * v) / kV;
  const float b = y + (c * u - s * v) / kU;
  return {r, (y - kGray[0] * r - kGray[2] * b) / kGray[1], b};
}

}  // namespace

torch::Tensor from_bytes(const torch::Tensor& bytes) {
  return bytes.permute({0, 3, 1, 2}).to(torch::kFloat).div_(255);
}

torch::Tensor cover_batch(const torch::Tensor& x, ImageSize size) {
  const ImageSize from = {x.size(2), x.size(3)};
  if (from == size) return x;
  const ImageSize large = proportional(from, size);
  return torch::upsample_bilinear2d(
             x,
             {large.height, large.width},
             /*align_corners=*/false)
      .narrow(2, (large.height - size.height) / 2, size.height)
      .narrow(3, (large.width - size.width) / 2, size.width);
}

torch::Tensor warp_batch(
    const torch::Tensor& x,
    const std::vector<Matrix3>& matrices,
    Padding padding) {
  const int64_t count = std::ssize(matrices);
  torch::Tensor maps = torch::empty({count, 2, 3});
  float* values = maps.mutable_data_ptr<float>();
  for (const Matrix3& matrix : matrices) {
    const Matrix3 units = in_grid_units(matrix, {x.size(2), x.size(3)});
    values = std::copy_n(units.values.begin(), 6, values);
  }
  const torch::Tensor grid = torch::affine_grid_generator(
      maps.to(x.options()),
      x.sizes(),
      /*align_corners=*/false);
  return torch::grid_sampler(
      x,
      grid,
      /*interpolation_mode=*/0,
      grid_padding(padding),
      /*align_corners=*/false);
}

// Separate passes per direction, so that the cost grows with `size` instead of
// its square.
torch::Tensor box_blur_batch(const torch::Tensor& x, int64_t size) {
  const auto along = [&](const torch::Tensor& t, int64_t down, int64_t across) {
    return torch::avg_pool2d(
               t,
               {down, across},
               /*stride=*/1,
               {down / 2, across / 2},
               /*ceil_mode=*/false,
               /*count_include_pad=*/false)
        .slice(2, 0, x.size(2))
        .slice(3, 0, x.size(3));
  };
  return along(along(x, size, 1), 1, size);
}

// c and b are contrast and brightness, M is the matrix of saturation and hue,
// which maps gray to itself. Contrast scales the distance from the image's mean
// gray g. Together: M (c b x + (1 - c) b g) = c b M x + (1 - c) b g.
torch::Tensor change_colors(
    const torch::Tensor& x,
    const std::vector<ColorChange>& changes) {
  const int64_t count = std::ssize(changes);
  torch::Tensor numbers = torch::empty({count, 10});
  float* value = numbers.mutable_data_ptr<float>();
  for (const ColorChange& change : changes) {
    const float factor = change.brightness * change.contrast;
    for (int column = 0; column < 3; ++column) {
      Color unit = {0, 0, 0};
      unit[column] = 1;
      const Color to = changed_chroma(unit, change);
      for (int row = 0; row < 3; ++row)
        value[3 * row + column] = factor * to[row];
    }
    value[9] = change.brightness * (1 - change.contrast);
    value += 10;
  }
  numbers = numbers.to(x.options());
  const torch::Tensor matrices = numbers.slice(1, 0, 9).reshape({-1, 3, 3});
  const torch::Tensor gray =
      (x.mean({2, 3}) *
       torch::tensor({kGray[0], kGray[1], kGray[2]}, x.options()))
          .sum(1, /*keepdim=*/true);
  const torch::Tensor shift = (gray * numbers.slice(1, 9, 10)).unsqueeze(2);
  return torch::baddbmm(shift, matrices, x.flatten(2))
      .view(x.sizes())
      .clamp(0, 1);
}

}  // namespace tern
