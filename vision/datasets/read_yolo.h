#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

struct YoloOptions {
  /// True if coordinates are relative to the upright image, as Tern and
  /// Ultralytics read them. False if they are relative to the image as stored,
  /// for training with `decode.exif_orientation = false`. This only matters for
  /// photos that are rotated by their EXIF orientation.
  bool exif_orientation = true;
  /// Converts the polygons of a segmentation dataset to their bounding boxes.
  /// Otherwise a line with more than five numbers is an error.
  bool polygons = false;
  /// Throws if a label file has no image, which indicates a wrong folder.
  bool check_labels = true;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Number of threads that read image sizes; -1: one per core.
  int64_t workers = -1;
  /// Receives progress, and the warning of `BadBoxes::skip`; empty:
  /// `terminal()`.
  Sink sink = {};
};

/// Reads the boxes of YOLO's label files. The label file of an image is a .txt
/// file of the same name, with a line `class cx cy width height` per object,
/// relative to the size of the image.
///
///   BoxAnnotations yolo =
///       read_yolo("coco8/labels/train", "coco8/images/train");
///
/// Returns all images at any depth below `images_folder`, sorted by path. The
/// label file of images_folder/a/1.jpg is labels_folder/a/1.txt. An image
/// without a label file, or with an empty one, has no objects. The sizes of
/// images with objects are read from their headers.
///
/// \param classes  Class names by index; empty: the lines of classes.txt in
///                 `labels_folder`.
/// \throws DataError naming file and line, if a label file is damaged, no image
///         has a label file, a label file has no image or several, the header
///         of an image is damaged, there are no classes, or a box is bad (see
///         BadBoxes); IoError; c10::ValueError for invalid classes.
BoxAnnotations read_yolo(
    const std::filesystem::path& labels_folder,
    const std::filesystem::path& images_folder,
    const std::vector<std::string>& classes = {},
    const YoloOptions& options = {});

}  // namespace tern
