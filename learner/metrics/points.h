#pragma once

#include <cstdint>

#include "tern/learner/metric.h"

namespace tern {

// Points in images, such as the corners of a mouth. The first output is
// [N, P, 2], x and y of P points in pixels. There are two targets: points
// [N, P, 2] kFloat and visible [N, P] kBool. A point that is not visible is not
// counted, whatever its x and y. A value is NaN if no point of the dataset is
// visible, or if x or y of a visible point is NaN.

/// The length relative to which the allowed distance is measured.
enum class PckLength {
  /// The longer side of the box around the sample's visible points (Yang and
  /// Ramanan 2013).
  box,
  /// The distance between two points of the sample: two points of the head for
  /// PCKh, or shoulder and hip for the torso.
  points,
  /// The diagonal of the image.
  image,
};

struct PckOptions {
  /// Allowed distance as a fraction of the length, > 0.
  double threshold = 0.2;
  PckLength length = PckLength::box;
  /// For PckLength::points: indices of the two points, from 0.
  int64_t first = 0, second = 1;
  /// For PckLength::image: size of the images in pixels.
  int64_t height = 0, width = 0;
};

/// Percentage of correct keypoints: the fraction, 0 to 1, of visible points
/// whose distance from the true point is at most `threshold` times a length.
/// Its name is "pck_0.2", "pck_0.2_points" or "pck_0.2_image". Samples whose
/// length is 0, or whose two points are not both visible, are not counted.
/// \throws c10::ValueError for options outside these ranges; from `update`, for
///         invalid shapes or dtypes.
Metric percentage_of_correct_keypoints(const PckOptions& options = {});

/// Mean distance in pixels between predicted and true points, over visible
/// points. Its name is "mean_point_distance"; lower is better.
/// \throws c10::ValueError from `update`, for invalid shapes or dtypes.
Metric mean_point_distance();

}  // namespace tern
