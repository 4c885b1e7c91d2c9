#pragma once

#include "tern/data/data_bunch.h"
#include "tern/vision/transforms/transform.h"

namespace tern {

/// Does `transforms` to every training batch on its device, each sample in its
/// own way: inputs[0], [N, H, W, 1 or 3] kByte, which stays so, and a mask of
/// class numbers, targets[0] of [N, H, W] kLong, without mixing its numbers.
/// Put it before `normalize`.
///
///   data.batch_transforms.insert(
///       data.batch_transforms.begin(),
///       augment_batch(get_transforms().train));
///
/// On a GPU all geometry is one `grid_sample` of the batch and all lighting one
/// look-up; on a CPU it is what a loader's worker does, on all threads. Both
/// give the same numbers but for rounding. Transforms with functions of pixels
/// (`pixel_functions`) need a CPU.
///
/// \throws c10::ValueError, when it is called, for a batch of another kind.
BatchTransform augment_batch(
    Transforms transforms,
    Padding padding = Padding::reflection);

}  // namespace tern
