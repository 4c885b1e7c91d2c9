#include "tern/vision/matting/matting_transforms.h"

#include "tern/vision/transforms/filters.h"
#include "tern/vision/transforms/lighting.h"
#include "tern/vision/transforms/random_affine.h"

namespace tern {

MattingTransforms matting_transforms(Range pair_scale, Range background_scale) {
  const auto with = [](Range scale) {
    return Transforms{
        random_affine(
            {.degrees = {-5, 5},
             .translate = 0.1f,
             .scale = scale,
             .shear = {-5, 5}}),
        flip_lr(),
        box_blur(5, 0.1f),
        sharpen(0.1f),
        // What multiplies mid-grey by 0.85 to 1.15.
        brightness({0.425f, 0.575f}, 1),
        contrast({0.85f, 1.15f}, 1),
        saturation(0.15f, 1),
        hue(0.05f, 1)};
  };
  return {with(pair_scale), with(background_scale)};
}

}  // namespace tern
