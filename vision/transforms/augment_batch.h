#pragma once

#include <optional>

#include "tern/data/data_bunch.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// Applies `transforms` to every training batch on its device, with separate
/// random numbers per sample: to inputs[0], [N, H, W, 1 or 3] kByte, and to
/// masks, targets[0] of [N, H, W] kLong, with nearest-neighbour sampling.
///
///   data.batch_transforms = {
///       augment_batch(
///           get_transforms().train, Padding::reflection, stats::imagenet())};
///
/// On a GPU geometry, lighting, erasing and normalisation are one kernel launch
/// (`augment_images`); on a CPU the loader's code runs on all threads. Results
/// agree up to rounding, unless a transform shrinks an image to less than half,
/// which only the CPU smooths. Transforms with `pixel_functions` need a CPU.
///
/// \param stats  Normalises the images, in evaluation too, as `normalize`: one
///               value per channel, or one for all. Unset: they stay kByte for
///               later transforms.
/// \throws c10::ValueError, when it is called, for any other batch.
BatchTransform augment_batch(
    Transforms transforms,
    Padding padding = Padding::reflection,
    std::optional<ImageStats> stats = {});

}  // namespace tern
