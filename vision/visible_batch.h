#pragma once

#include <torch/types.h>

#include "tern/data/data_bunch.h"

namespace tern {

/// A batch's images as people see them, and its targets.
struct VisibleBatch {
  torch::Tensor images;   // [N, H, W, 1 or 3] kByte, CPU
  torch::Tensor targets;  // [N, ...], CPU; undefined where there are none
};

/// Does the batch transforms of `data` for as long as the images are bytes:
/// what is left out is their normalisation. Floating images are shown as they
/// are where they lie in 0..1, else between their smallest and largest value.
///
/// \throws c10::ValueError if the inputs are no images.
VisibleBatch visible_batch(const DataBunch& data, Batch batch, bool augments);

}  // namespace tern
