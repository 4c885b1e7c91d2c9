#pragma once

#include <cstdint>

#include "tern/learner/metric.h"

namespace tern {

// Points in images, such as the corners of a mouth. The first output is
// [N, P, 2], x and y of P points in pixels. Targets are two: points [N, P, 2]
// kFloat and visible [N, P] kBool; a point that is not visible counts nowhere,
// whatever its x and y. NaN if no point of the set is visible, or if a visible
// one's x or y is NaN.

/// The length of which a share is the distance that is allowed.
enum class PckLength {
  /// The longer side of the box around the sample's visible points (Yang and
  /// Ramanan 2013).
  box,
  /// The distance of two points of the sample: of the head for PCKh, of
  /// shoulder and hip for the torso.
  points,
  /// The diagonal of the image.
  image,
};

struct PckOptions {
  /// Share of the length, > 0.
  double threshold = 0.2;
  PckLength length = PckLength::box;
  /// For PckLength::points: which they are, from 0.
  int64_t first = 0, second = 1;
  /// For PckLength::image: size of the images in pixels.
  int64_t height = 0, width = 0;
};

/// Percentage of correct keypoints: the share, 0 to 1, of visible points that
/// are no farther from the true one than `threshold` times a length: "pck_0.2",
/// or "pck_0.2_points", "pck_0.2_image". A sample whose length is 0, or whose
/// two points are not both visible, counts nowhere.
/// \throws c10::ValueError for options that are not as above; at an update, for
///         other shapes and types.
Metric percentage_of_correct_keypoints(const PckOptions& options = {});

/// Mean distance of visible points from the true ones in pixels:
/// "mean_point_distance"; lower is better.
/// \throws c10::ValueError at an update, for other shapes and types.
Metric mean_point_distance();

}  // namespace tern
