#pragma once

#include <cstdint>
#include <filesystem>

#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

struct ShowMasksOptions {
  /// The first so many images of the split.
  int64_t count = 4;
  Split split = Split::valid;
  /// Of the colours over the image, 0 to 1.
  double opacity = 0.6;
};

/// Draws images, what they show in truth and what the model sees, side by side,
/// a row for each, with the colours' names below. Pixels that are none of the
/// model's classes stay as they are.
///
/// \param file  A PNG, replaced.
/// \throws c10::ValueError if the split's data set gives no images [N, H, W, 3]
///         kByte with masks [N, H, W], or it has none; IoError.
void show_masks(
    Learner& learn,
    const std::filesystem::path& file,
    const ShowMasksOptions& options = {});

/// A colour for each of `classes`, well apart: [classes, 3] kByte.
torch::Tensor mask_colours(int64_t classes);

}  // namespace tern
