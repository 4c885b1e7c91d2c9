#pragma once

#include <array>

#include "tern/vision/transforms/transform.h"

namespace tern {

// Every one of these changes the matrix of a sample and makes no pixel. `p` is
// the probability that it does anything. Numbers and defaults are fastai's.
// All throw c10::ValueError for a p outside of 0..1 or a range upside down.

/// Mirrors left to right.
TransformPtr flip_lr(float p = 0.5f);

/// One of the eight ways to put down a square: turned and mirrored. An image
/// that is not square becomes stretched when it lies on its side.
TransformPtr dihedral(float p = 1);

/// Turns about the middle by an angle in degrees, clockwise.
TransformPtr rotate(Range degrees = {-10, 10}, float p = 0.75f);

/// Enlarges, each time about another point.
TransformPtr rand_zoom(Range scale = {1, 1.1f}, float p = 0.75f);

/// Enlarges about the middle.
TransformPtr zoom(Range scale = {1, 1.1f}, float p = 0.75f);

/// Stretches one direction against the other.
TransformPtr squish(Range scale = {1 / 1.2f, 1.2f}, float p = 0.75f);

/// Tilts the picture plane: each side becomes longer or shorter by up to
/// `magnitude` at each end, in units of half the image.
TransformPtr symmetric_warp(Range magnitude = {-0.2f, 0.2f}, float p = 0.75f);

/// Moves each of the four corners by up to `magnitude` in both directions, in
/// units of half the image.
TransformPtr perspective(float magnitude = 0.2f, float p = 0.5f);

/// Takes every pixel from a place nearby, up to `magnitude` away in units of
/// half the image.
TransformPtr jitter(Range magnitude = {0.005f, 0.02f}, float p = 0.5f);

/// The matrix that takes four points to four others.
/// \throws c10::ValueError if three of them lie on a line.
Matrix3 perspective_matrix(
    const std::array<std::array<double, 2>, 4>& from,
    const std::array<std::array<double, 2>, 4>& to);

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
