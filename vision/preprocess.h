#pragma once

#include <optional>

#include "tern/data/image_preprocessing.h"
#include "tern/vision/image_dataset.h"
#include "tern/vision/image_stats.h"

namespace tern {

/// What `images`, not for training, and then `normalize` with `stats` do to an
/// image. Nothing if a transform cannot be described.
std::optional<ImagePreprocessing> describe_preprocessing(
    const ImageDataset& images,
    const ImageStats& stats);

}  // namespace tern
