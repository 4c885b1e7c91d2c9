#pragma once

#include "tern/vision/transforms/geometry.h"

namespace tern {

/// Crops the target from a random position of the resized image, or from the
/// centre if `is_random` is false: fastai's rand_crop and crop_pad. Has an
/// effect where the image is larger than the target, after `ResizeMethod::crop`
/// or `none`.
TransformPtr rand_crop(bool is_random = true);

/// Resizes a random part of the image to the target: torchvision's
/// RandomResizedCrop. Falls back to a centre crop after ten attempts.
/// \param scale  Range of the part's fraction of the area.
/// \param ratio  Range of its aspect ratio, width over height.
TransformPtr random_resized_crop(
    Range scale = {0.08f, 1},
    Range ratio = {3.f / 4, 4.f / 3},
    float p = 1);

/// Resizes to cover the target enlarged by the fraction `margin`, and crops the
/// centre: for validation with `random_resized_crop`.
TransformPtr centre_crop(float margin = 0.14f);

}  // namespace tern
