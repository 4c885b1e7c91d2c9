#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/vision/image_bunch_options.h"
#include "tern/vision/image_source.h"
#include "tern/vision/image_targets.h"

namespace tern {

/// Images with their targets.
struct TargetedImages {
  std::vector<std::string> paths;
  std::shared_ptr<const ImageTargets> targets;
  /// Null: `paths` are files.
  std::shared_ptr<const ImageSource> source = nullptr;
};

/// Data sets and loaders of images that are found, split and labelled.
DataBunch make_bunch(
    TargetedImages train,
    TargetedImages valid,
    std::vector<std::string> classes,
    const ImageDataBunchOptions& options);

/// Draws `valid_pct` of `count` items to check with.
/// \throws c10::ValueError if that leaves nothing to check with or to learn
///         from.
std::vector<Split> draw_split(int64_t count, double valid_pct, uint64_t seed);

}  // namespace tern
