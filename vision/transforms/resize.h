#pragma once

#include "tern/vision/transforms/geometry.h"

namespace tern {

/// Cuts the target from a random place of the resized image, or from the middle
/// when `is_random` is false: fastai's rand_crop and crop_pad. Only where the
/// image is larger than the target, that is after `ResizeMethod::crop` or
/// `none`.
TransformPtr rand_crop(bool is_random = true);

/// Stretches a random part of the image to the target: torchvision's
/// RandomResizedCrop. An image is never stretched by more than the range of
/// `ratio` allows, unless its own shape leaves no such part in ten tries.
/// \param scale  Range of the part's share of the area.
/// \param ratio  Range of its width over its height.
TransformPtr random_resized_crop(
    Range scale = {0.08f, 1},
    Range ratio = {3.f / 4, 4.f / 3},
    float p = 1);

/// Covers the target enlarged by the share `margin`, and cuts the target from
/// the middle: for the images to check with beside `random_resized_crop`.
TransformPtr centre_crop(float margin = 0.14f);

}  // namespace tern
