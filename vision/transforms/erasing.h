#pragma once

#include "tern/vision/transforms/geometry.h"

namespace tern {

/// Paints black squares over the image, as fastai's cutout.
/// \param holes   Range of their number.
/// \param length  Range of their sides, in pixels.
TransformPtr
cutout(Range holes = {1, 1}, Range length = {40, 40}, float p = 0.5f);

/// Paints noise over a rectangle, as fastai's RandomErasing.
/// \param area        Range of its share of the image.
/// \param min_aspect  Its sides differ by at most the factor 1 / min_aspect.
TransformPtr
random_erasing(float p = 0.5f, Range area = {0, 0.3f}, float min_aspect = 0.3f);

}  // namespace tern
