#pragma once

#include "tern/vision/transforms/transform.h"

namespace tern {

/// Options of `get_transforms`; the defaults are fastai's for photos. 0 (1 for
/// max_zoom) disables a transform.
struct GetTransformsOptions {
  bool do_flip = true;
  /// Applies all rotations and flips of a square, for images taken from above.
  bool flip_vert = false;
  /// Maximum rotation in degrees.
  float max_rotate = 10;
  float max_zoom = 1.1f;
  float max_lighting = 0.2f;
  float max_warp = 0.2f;
  /// Probability of each of warp, rotation and zoom, and of each of brightness
  /// and contrast.
  float p_affine = 0.75f, p_lighting = 0.75f;
  /// Additional training transforms, applied after the others.
  Transforms extra = {};
};

/// Returns random crop, flip, symmetric warp, rotation, zoom, brightness and
/// contrast for training, and a center crop for validation. Source: fastai v1,
/// vision/transform.py, get_transforms.
///
///   auto data = ImageDataBunch::from_folder(
///       path,
///       {.size = 128,
///        .transforms = get_transforms(),
///        .resize = ResizeMethod::crop});
TransformLists get_transforms(const GetTransformsOptions& options = {});

}  // namespace tern
