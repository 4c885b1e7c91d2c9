#pragma once

#include <filesystem>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

struct CocoOptions {
  /// Also returns images without boxes.
  bool keep_empty = true;
  /// Throws if an image is missing. Needs one file system call per image.
  bool check_files = true;
  /// Numbers the classes by category id instead of consecutively, as
  /// torchvision's weights for COCO do: 91 classes, of which 80 occur. An id
  /// that is not used has a class with a name such as "unused 12".
  bool ids_as_classes = false;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Receives the warning of `BadBoxes::skip`; empty: `terminal()`.
  Sink sink = {};
};

/// Reads the boxes of a COCO instances file, such as
/// annotations/instances_train2017.json.
///
///   BoxAnnotations coco = read_coco("instances_val2017.json", "val2017");
///   coco.images[0].objects.boxes;   // x1, y1, x2, y2 of [x, y, w, h]
///
/// Classes are ordered by category id; `category_ids` contains the ids. Unless
/// `ids_as_classes` is set, they are numbered consecutively. Images
/// are in the order of the file. `iscrowd` becomes Box::crowd and `area`
/// Box::area. Segmentations and keypoints are skipped. Files of hundreds of MB
/// are parsed without building a JSON tree.
///
/// \throws DataError naming the annotation and its image, if the file is
///         damaged or not an instances file, an image is missing, an image name
///         or an id is duplicated, a class name is not UTF-8, or a box is bad
///         (see BadBoxes); IoError.
BoxAnnotations read_coco(
    const std::filesystem::path& json,
    const std::filesystem::path& images_folder,
    const CocoOptions& options = {});

}  // namespace tern
