#pragma once

#include <string>
#include <vector>

#include "tern/data/data_bunch.h"
#include "tern/vision/image_items.h"
#include "tern/vision/make_bunch.h"

namespace tern {

/// What labels are taken for.
enum class TargetKind {
  /// One class: [N] kLong.
  category,
  /// Any number of classes, none too: [N, classes] kFloat, 1 for those.
  multi_category,
  /// Numbers, equally many for each: [N] or [N, k] kFloat.
  number,
  /// The path of a PNG of class numbers: [N, H, W] kLong.
  mask,
};

/// How a set of images comes about, step by step: what there is, which part is
/// to check with, what it is called.
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
  /// The classes in the order of their numbers; empty: those of the images to
  /// learn from, sorted. Of masks only the names; empty: any number is one.
  std::vector<std::string> classes = {};

  /// \throws DataError naming the file or the row: a label that images to learn
  ///         from do not have, that is missing or no number, a split that
  ///         leaves nothing. c10::ValueError for a bad option.
  DataBunch bunch(const ImageDataBunchOptions& options = {}) const;
};

}  // namespace tern
