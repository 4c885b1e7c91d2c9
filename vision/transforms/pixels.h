#pragma once

#include <array>

#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/transform.h"

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

// Filters of the finished 8-bit pixels; edges are repeated. `p` is the
// probability that one does anything. Both throw c10::ValueError for a p
// outside of 0..1.

/// Averages each pixel with those up to `radius` away in both directions,
/// `radius` drawn from 1 to `max_radius`.
/// \throws c10::ValueError if max_radius is below 1.
TransformPtr box_blur(int max_radius = 5, float p = 0.1f);

/// Makes edges clearer; Pillow's ImageFilter.SHARPEN.
TransformPtr sharpen(float p = 0.1f);

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
