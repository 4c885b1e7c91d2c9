#pragma once

#include "tern/vision/transforms/sample_plan.h"

namespace tern {

/// Changes the colours of an image, through one table where every channel
/// depends on itself alone. Saturation and hue leave a grey image as it is.
void apply_lighting(const Lighting& lighting, const MutablePixels& image);

/// Paints a rectangle over; what lies outside of the image is cut.
void erase(const Erasure& erasure, const MutablePixels& image);

}  // namespace tern
