#pragma once

#include "tern/vision/transforms/transform.h"

namespace tern {

/// fastai's defaults for photographs. 0 (for max_zoom: 1) disables a transform.
struct GetTransformsOptions {
  bool do_flip = true;
  /// All rotations and flips of a square, for images taken from above.
  bool flip_vert = false;
  /// Degrees.
  float max_rotate = 10;
  float max_zoom = 1.1f;
  float max_lighting = 0.2f;
  float max_warp = 0.2f;
  /// Probabilities of warp, rotation and zoom, and of brightness and contrast.
  float p_affine = 0.75f, p_lighting = 0.75f;
  /// Added after the others, for training only.
  Transforms extra = {};
};

/// Random crop, flip, symmetric warp, rotation, zoom, brightness and contrast
/// for training; a center crop for validation. Source: fastai v1,
/// vision/transform.py, get_transforms.
///
///   auto data = ImageDataBunch::from_folder(
///       path,
///       {.size = 128,
///        .transforms = get_transforms(),
///        .resize = ResizeMethod::crop});
TransformLists get_transforms(const GetTransformsOptions& options = {});

}  // namespace tern
