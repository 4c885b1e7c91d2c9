#pragma once

#include <array>

#include "tern/vision/transforms/transform.h"

namespace tern {

// These transforms change where a sample's pixels are read from, not their
// values. `p` is the probability of applying the transform. Ranges and defaults
// are fastai's. All throw c10::ValueError for a p outside 0..1 or a reversed
// range.

/// Flips images left to right.
TransformPtr flip_lr(float p = 0.5f);

/// Applies one of the eight rotations and flips of a square at random. Rotation
/// by 90 degrees stretches an image that is not square.
TransformPtr dihedral(float p = 1);

/// Rotates about the center by an angle in degrees, clockwise.
TransformPtr rotate(Range degrees = {-10, 10}, float p = 0.75f);

/// Zooms in about a random point.
TransformPtr rand_zoom(Range scale = {1, 1.1f}, float p = 0.75f);

/// Zooms in about the center.
TransformPtr zoom(Range scale = {1, 1.1f}, float p = 0.75f);

/// Changes the aspect ratio.
TransformPtr squish(Range scale = {1 / 1.2f, 1.2f}, float p = 0.75f);

/// Tilts the image plane: lengthens or shortens each side by up to `magnitude`
/// at both ends, where 1 is half the image.
TransformPtr symmetric_warp(Range magnitude = {-0.2f, 0.2f}, float p = 0.75f);

/// Moves each of the four corners horizontally and vertically by up to
/// `magnitude`, where 1 is half the image.
TransformPtr perspective(float magnitude = 0.2f, float p = 0.5f);

/// Replaces every pixel with a random pixel nearby, up to `magnitude` away,
/// where 1 is half the image.
TransformPtr jitter(Range magnitude = {0.005f, 0.02f}, float p = 0.5f);

// ---- Crops to the target size ----

/// Crops the resized image to the target size, at a random position or, if
/// `is_random` is false, at the center. Same as fastai's rand_crop and
/// crop_pad. Has an effect only if the image is larger than the target, as
/// after `ResizeMethod::crop` or `none`.
TransformPtr rand_crop(bool is_random = true);

/// Resizes a random part of the image to the target size, like torchvision's
/// RandomResizedCrop. After ten failed attempts, and with probability 1 - p,
/// uses the largest center crop with an allowed aspect ratio.
/// \param scale  Range of the part's area, as a fraction of the image's.
/// \param ratio  Range of the part's aspect ratio, width over height.
TransformPtr random_resized_crop(
    Range scale = {0.08f, 1},
    Range ratio = {3.f / 4, 4.f / 3},
    float p = 1);

/// Resizes the image until it covers the target size enlarged by the fraction
/// `margin`, then center-crops it to the target size. For validation of models
/// that train with `random_resized_crop`.
TransformPtr center_crop(float margin = 0.14f);

// ---- Matrices ----

/// Returns the matrix that maps the four points `from` to the points `to`.
/// \throws c10::ValueError if three of the points are on a line.
Matrix3 perspective_matrix(
    const std::array<std::array<double, 2>, 4>& from,
    const std::array<std::array<double, 2>, 4>& to);

/// Ranges of a random affine map, as in torchvision's RandomAffine.
struct AffineRanges {
  /// Rotation about the center, clockwise.
  Range degrees = {0, 0};
  /// Translation by up to this fraction of the width and height.
  float translate = 0;
  /// Scale about the center, above 0.
  Range scale = {1, 1};
  /// Shear along the rows, in degrees.
  Range shear = {0, 0};
};

/// Draws a random affine map from pixels of the result to pixels of the source.
/// Both have the size `size`.
Matrix3 draw_affine(const AffineRanges& ranges, ImageSize size, SampleRng& rng);

/// Applies a random affine map about the center of the image.
/// \throws c10::ValueError for a reversed range, a scale that is not above 0,
///         or a p outside 0..1.
TransformPtr random_affine(const AffineRanges& ranges, float p = 1);

}  // namespace tern
