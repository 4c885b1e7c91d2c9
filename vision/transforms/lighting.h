#pragma once

#include <array>

#include "tern/vision/transforms/geometry.h"

namespace tern {

// Changes of colour, with fastai's numbers; `p` is the probability that a
// transform does anything. Brightness and contrast of all of them become one
// table of 256 values.

/// Adds to the logits of all pixels: 0.5 changes nothing, 0 is black, 1 white.
TransformPtr brightness(Range change = {0.4f, 0.6f}, float p = 0.75f);

/// Multiplies the logits of all pixels: 1 changes nothing, 0 is grey.
TransformPtr contrast(Range scale = {0.8f, 1.25f}, float p = 0.75f);

/// Moves every pixel away from its own grey: 1 changes nothing, 0 is grey.
/// Drawn evenly on a logarithmic scale from 1 - max to 1 / (1 - max).
TransformPtr saturation(float max = 0.2f, float p = 0.75f);

/// Turns the colour circle by up to this share of it. Costs ten times what the
/// others do, for it is not linear.
TransformPtr hue(float max = 0.1f, float p = 0.75f);

/// Puts channel `order[i]` in the place of channel i: {2, 1, 0} gives BGR to a
/// model that was trained with OpenCV. Give it to train and valid.
TransformPtr channel_order(std::array<int, 3> order);

/// Replaces one channel, drawn for each image, by random values up to
/// `threshold`: fastai's rgb_randomize.
TransformPtr rgb_randomize(Range threshold = {0.2f, 0.99f}, float p = 0.2f);

}  // namespace tern
