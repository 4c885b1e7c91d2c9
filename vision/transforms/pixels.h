#pragma once

#include <array>

#include "tern/vision/transforms/geometry.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

// Changes of color, with fastai's ranges; `p` is the probability of applying
// the transform. Brightness and contrast are combined into one lookup table of
// 256 values.

/// Shifts the logits of all pixels. A change of 0.5 has no effect, 0 makes the
/// image black, 1 white.
TransformPtr brightness(Range change = {0.4f, 0.6f}, float p = 0.75f);

/// Scales the logits of all pixels. A scale of 1 has no effect, 0 makes the
/// image gray.
TransformPtr contrast(Range scale = {0.8f, 1.25f}, float p = 0.75f);

/// Scales the distance of every pixel from gray by a factor that is log-uniform
/// in 1 - max to 1 / (1 - max).
TransformPtr saturation(float max = 0.2f, float p = 0.75f);

/// Rotates the hue by up to `max`, a fraction of the circle. Takes ten times as
/// long as the other transforms, because it is not linear.
TransformPtr hue(float max = 0.1f, float p = 0.75f);

/// Reorders the channels: channel i of the result is channel `order[i]` of the
/// image. {2, 1, 0} produces BGR, for a model that was trained with OpenCV. Use
/// it in both train and valid.
TransformPtr channel_order(std::array<int, 3> order);

/// Replaces one random channel with random values between 0 and a limit drawn
/// from `threshold`, like fastai's rgb_randomize.
TransformPtr rgb_randomize(Range threshold = {0.2f, 0.99f}, float p = 0.2f);

// Filters of the final 8-bit pixels, with repeated edges.

/// Box-blurs the image: each pixel becomes the mean of the pixels up to
/// `radius` away in both directions. The radius is drawn from 1 to
/// `max_radius`.
/// \throws c10::ValueError if max_radius is below 1.
TransformPtr box_blur(int max_radius = 5, float p = 0.1f);

/// Sharpens the image, like Pillow's ImageFilter.SHARPEN.
TransformPtr sharpen(float p = 0.1f);

/// Erases black squares, like fastai's cutout.
/// \param holes   Range of the number of squares.
/// \param length  Range of their side lengths, in pixels.
TransformPtr
cutout(Range holes = {1, 1}, Range length = {40, 40}, float p = 0.5f);

/// Fills a rectangle with noise, like fastai's RandomErasing.
/// \param area        Range of its area, as a fraction of the image's.
/// \param min_aspect  Minimum ratio of its shorter to its longer side.
TransformPtr
random_erasing(float p = 0.5f, Range area = {0, 0.3f}, float min_aspect = 0.3f);

}  // namespace tern
