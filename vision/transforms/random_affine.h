#pragma once

#include "tern/vision/transforms/geometry.h"

namespace tern {

/// What to draw an affine map from, as torchvision's RandomAffine.
struct AffineRanges {
  /// Turns about the middle, clockwise.
  Range degrees = {0, 0};
  /// Moves by up to this share of the width and of the height.
  float translate = 0;
  /// Enlarges about the middle; above 0.
  Range scale = {1, 1};
  /// Slants along the rows, in degrees.
  Range shear = {0, 0};
};

/// Draws one: from the pixels of the result to those of the source, both of
/// `size`.
Matrix3 draw_affine(const AffineRanges& ranges, ImageSize size, SampleRng& rng);

/// Throws a c10::ValueError if a range is upside down or a scale not above 0.
/// \param name  For its sentence.
void check_affine(const char* name, const AffineRanges& ranges);

/// Turns, moves, enlarges and slants a sample, about the middle of the canvas.
/// \throws c10::ValueError as `check_affine`, and for a p outside of 0..1.
TransformPtr random_affine(const AffineRanges& ranges, float p = 1);

}  // namespace tern
