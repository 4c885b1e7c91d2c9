#pragma once

#include "tern/vision/transforms/geometry.h"

namespace tern {

/// What happens to training pictures when they are read, by the loader's
/// workers.
struct MattingTransforms {
  /// To foreground and alpha alike; colours change in the foreground only.
  Transforms pair = {};
  Transforms background = {};
};

/// BackgroundMattingV2's: turned by up to 5 degrees, moved by up to 0.1,
/// enlarged and slanted by up to 5 degrees, mirrored, now and then blurred or
/// sharpened, and other in colour. Brightness, contrast and saturation differ
/// by up to 15 %, at mid-grey, and the hue by 0.05 of the circle.
/// \param pair_scale  How large a foreground becomes, as a share of what would
///                    cover the batch's size; the refining network's is {0.3,
///                    1}.
MattingTransforms matting_transforms(
    Range pair_scale = {0.4f, 1},
    Range background_scale = {1, 2});

}  // namespace tern
