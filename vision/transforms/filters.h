#pragma once

#include "tern/vision/transforms/transform.h"

namespace tern {

// Filters of the finished 8-bit pixels; edges are repeated. `p` is the
// probability that one does anything. Both throw c10::ValueError for a p
// outside of 0..1.

/// Averages each pixel with those up to `radius` away in both directions,
/// `radius` drawn from 1 to `max_radius`.
/// \throws c10::ValueError if max_radius is below 1.
TransformPtr box_blur(int max_radius = 5, float p = 0.1f);

/// Makes edges clearer; Pillow's ImageFilter.SHARPEN.
TransformPtr sharpen(float p = 0.1f);

}  // namespace tern
