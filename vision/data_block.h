#pragma once

#include <string>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/vision/image_items.h"
#include "tern/vision/make_bunch.h"

namespace tern {

/// Target type: how labels are interpreted.
enum class TargetKind {
  /// One class per image: [N] kLong.
  category,
  /// Any number of classes per image: [N, classes] kFloat, 0 or 1.
  multi_category,
  /// One or k numbers per image: [N] or [N, k] kFloat.
  number,
  /// Path of a PNG of class indices: [N, H, W] kLong.
  mask,
};

/// Describes an image dataset: the items, the split into training and
/// validation images, the labels.
///
///   DataBlock pets{
///       .items = items_from_folder("pets/images"),
///       .split = split_at_random(0.2),
///       .label = label_from_re(R"(/([^/]+)_\d+\.jpg$)")};
///   DataBunch data = pets.bunch(
///       {.size = 224,
///        .transforms = get_transforms(),
///        .resize = ResizeMethod::crop});
struct DataBlock {
  ImageItems items = {};
  Splitter split = split_at_random();
  Labeller label = label_from_folder();
  TargetKind target = TargetKind::category;
  /// Class names in the order of their indices; empty: those of the training
  /// images, sorted. For masks the names only; empty: indices are not checked.
  std::vector<std::string> classes = {};

  /// \throws DataError naming the file or row, for a label that is missing, not
  ///         a number or unknown in the training images, and for a split that
  ///         leaves one side empty. c10::ValueError for a bad option.
  DataBunch bunch(const ImageDataBunchOptions& options = {}) const;
};

}  // namespace tern
