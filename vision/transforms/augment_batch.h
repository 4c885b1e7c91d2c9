#pragma once

#include <optional>

#include "tern/data/data_bunch.h"
#include "tern/vision/image_stats.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// Does `transforms` to every training batch on its device, each sample in its
/// own way: inputs[0], [N, H, W, 1 or 3] kByte, and a mask of class numbers,
/// targets[0] of [N, H, W] kLong, without mixing its numbers.
///
///   data.batch_transforms = {
///       augment_batch(
///           get_transforms().train, Padding::reflection, stats::imagenet())};
///
/// On a GPU all geometry, lighting, erasing and normalisation of the images are
/// one launch (`augment_images`); on a CPU they are what a loader's worker
/// does, on all threads. Both give the same numbers but for rounding, where a
/// transform shrinks no image to less than half: the loader smooths that.
/// Transforms with functions of pixels (`pixel_functions`) need a CPU.
///
/// \param stats  What the images, also those that are not for training, are
///               normalised with, as by `normalize`: a value for each channel,
///               or one for all. Unset: they stay kByte, for transforms that
///               follow.
/// \throws c10::ValueError, when it is called, for a batch of another kind.
BatchTransform augment_batch(
    Transforms transforms,
    Padding padding = Padding::reflection,
    std::optional<ImageStats> stats = {});

}  // namespace tern
