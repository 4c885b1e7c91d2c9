#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "tern/kernels/kernel_args.h"

namespace tern {

/// A 3 x 3 matrix that maps points of a plane, in row-major order; affine if
/// its last row is (0, 0, 1), otherwise perspective.
///
///   Matrix3 m = Matrix3::scaling(2, 2) * Matrix3::translation(5, 0);
///   m.apply(1, 1);   // {12, 2}: moved first, then scaled
struct Matrix3 {
  std::array<double, 9> values = {1, 0, 0, 0, 1, 0, 0, 0, 1};

  static Matrix3 translation(double x, double y) {
    return {{1, 0, x, 0, 1, y, 0, 0, 1}};
  }
  static Matrix3 scaling(double x, double y) {
    return {{x, 0, 0, 0, y, 0, 0, 0, 1}};
  }
  /// Clockwise if y points down.
  static Matrix3 rotation(double radians) {
    const double c = std::cos(radians), s = std::sin(radians);
    return {{c, -s, 0, s, c, 0, 0, 0, 1}};
  }

  bool is_affine() const { return values[6] == 0 && values[7] == 0; }

  std::pair<double, double> apply(double x, double y) const {
    const auto& m = values;
    const double w = m[6] * x + m[7] * y + m[8];
    return {(m[0] * x + m[1] * y + m[2]) / w, (m[3] * x + m[4] * y + m[5]) / w};
  }

  /// Negative if the map also flips.
  double determinant() const {
    const auto& m = values;
    return m[0] * (m[4] * m[8] - m[5] * m[7]) -
           m[1] * (m[3] * m[8] - m[5] * m[6]) +
           m[2] * (m[3] * m[7] - m[4] * m[6]);
  }
  /// Returns the inverse matrix: `m.inverse() * m` is the identity.
  /// \throws c10::ValueError if there is none, since `m` maps the plane to a
  ///         line or a point.
  Matrix3 inverse() const;

  friend Matrix3 operator*(const Matrix3& a, const Matrix3& b) {
    Matrix3 product;
    for (int row = 0; row < 3; ++row) {
      for (int column = 0; column < 3; ++column) {
        double sum = 0;
        for (int k = 0; k < 3; ++k) {
          sum += a.values[row * 3 + k] * b.values[k * 3 + column];
        }
        product.values[row * 3 + column] = sum;
      }
    }
    return product;
  }
  friend bool operator==(const Matrix3&, const Matrix3&) = default;
};

/// Interpolation mode.
enum class Sampling { bilinear, nearest };

/// A view of 8-bit pixels, [height, width, channels].
struct PixelView {
  const uint8_t* pixels = nullptr;
  int64_t height = 0, width = 0, channels = 3;
  /// Bytes from one row to the next.
  int64_t stride = 0;
  /// One past the last byte that may be read.
  const uint8_t* end = nullptr;
};

/// A geometric transform: the point of the source that each result pixel
/// samples.
struct Warp {
  /// From the result to the source: the result at (x, y) shows the source at
  /// `matrix.apply(x, y)`. The center of the pixel in row y and column x is
  /// (x + 0.5, y + 0.5). Objects in the source, such as boxes, move the
  /// opposite way, by `matrix.inverse()`.
  Matrix3 matrix = {};
  Padding padding = Padding::reflection;
  Sampling sampling = Sampling::bilinear;
  /// Averages all source pixels that a result pixel covers, as Pillow does, if
  /// the warp `only_resizes`. Doubles the work when shrinking; used in
  /// evaluation.
  bool antialias = false;
  /// Maximum random shift of every point, in pixels of the source.
  float jitter_x = 0, jitter_y = 0;
  /// Seed of these shifts.
  uint32_t jitter_key = 0;
};

/// Warps an image by sampling `source` once per pixel.
///
/// \param out  [height, width, source.channels] to fill, contiguous.
///
/// Bilinear weights have 8 bits, so a value differs by at most 1 from
/// `torch.nn.functional.grid_sample(align_corners=False)` if neighbors differ
/// by less than 128, otherwise by at most 2. Does not smooth: apply
/// `shrink_by_area` first to a source much larger than the result.
void warp_image(
    const PixelView& source,
    const Warp& warp,
    int64_t height,
    int64_t width,
    uint8_t* out);

/// Averages blocks of `down` x `across` pixels; blocks at the lower and the
/// right edge may be smaller.
/// \param out  [ceil(height / down), ceil(width / across), channels].
void shrink_by_area(
    const PixelView& source,
    int64_t down,
    int64_t across,
    uint8_t* out);

/// Returns the random shift of the pixel in row y and column x, in -1..1 for x
/// and y.
std::pair<float, float> warp_jitter(uint32_t key, int64_t y, int64_t x);

}  // namespace tern
