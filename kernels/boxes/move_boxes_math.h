#pragma once

#include <cstdint>
#include <math.h>

#include "tern/kernels/kernel_args.h"

struct CUstream_st;

// Arguments that move_boxes.cpp, which works with tensors, passes to the CUDA
// kernels, which work with pointers; and the code for one box and one point,
// shared by both. Includes nothing from LibTorch or CUDA.
namespace tern {

/// Boxes or points in `count` rows, `per_image` rows per image.
struct MoveArgs {
  /// 4 or 2 numbers per row.
  float* coordinates;
  /// For boxes: one label per row, and one area per row or null.
  int64_t* labels;
  float* areas;
  /// For points: one visibility per row.
  bool* visible;
  /// 9 numbers per image, from old to new pixels.
  const double* matrices;
  int64_t count, per_image;
  double height, width, min_share;
};

/// \return a cudaError_t.
int move_boxes_cuda(const MoveArgs& args, CUstream_st* stream);
int move_points_cuda(const MoveArgs& args, CUstream_st* stream);

/// A point of the plane; `w` <= 0 for a point behind the horizon of a
/// perspective.
struct MovedPoint {
  double x, y, w;
};

TERN_ELEMENT_MATH MovedPoint moved_point(const double* m, double x, double y) {
  const double w = m[6] * x + m[7] * y + m[8];
  return {
      (m[0] * x + m[1] * y + m[2]) / w,
      (m[3] * x + m[4] * y + m[5]) / w,
      w};
}

/// A transformed box in the new image: a convex polygon. Each of the four cuts
/// at an edge of the image adds at most one corner.
struct Polygon {
  double x[8], y[8];
  int corners;
};

/// Cuts off the part beyond an edge: above `limit` if `sign` is 1, below it if
/// `sign` is -1 (Sutherland and Hodgman 1974).
TERN_ELEMENT_MATH Polygon
cut(const Polygon& from, bool along_x, double limit, double sign) {
  Polygon kept;
  kept.corners = 0;
  for (int i = 0; i < from.corners; ++i) {
    const int next = i + 1 < from.corners ? i + 1 : 0;
    const double here = sign * ((along_x ? from.x[i] : from.y[i]) - limit);
    const double there =
        sign * ((along_x ? from.x[next] : from.y[next]) - limit);
    if (here <= 0) {
      kept.x[kept.corners] = from.x[i];
      kept.y[kept.corners++] = from.y[i];
    }
    if ((here < 0 && there > 0) || (here > 0 && there < 0)) {
      const double part = here / (here - there);
      const double x = from.x[i] + part * (from.x[next] - from.x[i]);
      const double y = from.y[i] + part * (from.y[next] - from.y[i]);
      kept.x[kept.corners] = along_x ? limit : x;
      kept.y[kept.corners++] = along_x ? y : limit;
    }
  }
  return kept;
}

TERN_ELEMENT_MATH double area_of(const Polygon& polygon) {
  double twice = 0;
  for (int i = 0; i < polygon.corners; ++i) {
    const int next = i + 1 < polygon.corners ? i + 1 : 0;
    twice += polygon.x[i] * polygon.y[next] - polygon.x[next] * polygon.y[i];
  }
  return fabs(twice) / 2;
}

TERN_ELEMENT_MATH void move_box(const MoveArgs& args, int64_t row) {
  if (args.labels[row] < 0) return;
  float* const box = args.coordinates + 4 * row;
  const double* const m = args.matrices + 9 * (row / args.per_image);
  Polygon polygon;
  polygon.corners = 4;
  bool is_in_front = true;
  for (int corner = 0; corner < 4; ++corner) {
    const MovedPoint moved = moved_point(
        m,
        static_cast<double>(box[corner == 0 || corner == 3 ? 0 : 2]),
        static_cast<double>(box[corner < 2 ? 1 : 3]));
    is_in_front = is_in_front && moved.w > 0;
    polygon.x[corner] = moved.x;
    polygon.y[corner] = moved.y;
  }
  const double area = area_of(polygon);
  polygon = cut(polygon, true, 0, -1);
  polygon = cut(polygon, true, args.width, 1);
  polygon = cut(polygon, false, 0, -1);
  polygon = cut(polygon, false, args.height, 1);
  const double left_over = area_of(polygon);
  if (!is_in_front || !(left_over > 0) ||
      !(left_over >= args.min_share * area)) {
    for (int i = 0; i < 4; ++i) box[i] = 0;
    args.labels[row] = -1;
    if (args.areas != nullptr) args.areas[row] = 0;
    return;
  }
  if (args.areas != nullptr) {
    // How the transform scales areas at the center of the box.
    const double x = (static_cast<double>(box[0]) + box[2]) / 2;
    const double y = (static_cast<double>(box[1]) + box[3]) / 2;
    const double determinant = m[0] * (m[4] * m[8] - m[5] * m[7]) -
                               m[1] * (m[3] * m[8] - m[5] * m[6]) +
                               m[2] * (m[3] * m[7] - m[4] * m[6]);
    const double w = moved_point(m, x, y).w;
    args.areas[row] = static_cast<float>(
        args.areas[row] * fabs(determinant / (w * w * w)) * (left_over / area));
  }
  double low_x = polygon.x[0], low_y = polygon.y[0];
  double high_x = low_x, high_y = low_y;
  for (int i = 1; i < polygon.corners; ++i) {
    low_x = fmin(low_x, polygon.x[i]);
    low_y = fmin(low_y, polygon.y[i]);
    high_x = fmax(high_x, polygon.x[i]);
    high_y = fmax(high_y, polygon.y[i]);
  }
  box[0] = static_cast<float>(low_x);
  box[1] = static_cast<float>(low_y);
  box[2] = static_cast<float>(high_x);
  box[3] = static_cast<float>(high_y);
}

TERN_ELEMENT_MATH void move_point(const MoveArgs& args, int64_t row) {
  float* const point = args.coordinates + 2 * row;
  const MovedPoint moved = moved_point(
      args.matrices + 9 * (row / args.per_image),
      static_cast<double>(point[0]),
      static_cast<double>(point[1]));
  const bool is_known = args.visible[row] && moved.w > 0;
  point[0] = is_known ? static_cast<float>(moved.x) : 0;
  point[1] = is_known ? static_cast<float>(moved.y) : 0;
  args.visible[row] = is_known && moved.x >= 0 && moved.x <= args.width &&
                      moved.y >= 0 && moved.y <= args.height;
}

}  // namespace tern
