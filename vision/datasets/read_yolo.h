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
  /// The numbers are relative to the upright image, as Tern and Ultralytics
  /// show it; false: to the image as stored, for training with
  /// `decode.exif_orientation = false`. Only photographs that their EXIF
  /// orientation turns differ.
  bool exif_orientation = true;
  /// Takes the polygons of a segmentation dataset as the boxes around them;
  /// otherwise a line of more than five numbers is an error.
  bool polygons = false;
  /// Throws if a label file has no image, which a wrong folder causes.
  bool check_labels = true;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Number of threads that read sizes of images; -1: one per core.
  int64_t workers = -1;
  /// Receives the progress, and the warning of `BadBoxes::skip`; empty:
  /// `terminal()`.
  Sink sink = {};
};

/// Reads the boxes of YOLO's label files: for each image a .txt of its name
/// with a line `class cx cy width height` for each object, relative to the size
/// of the image.
///
///   BoxAnnotations yolo =
///       read_yolo("coco8/labels/train", "coco8/images/train");
///
/// All images at any depth below `images_folder` are returned, sorted by path;
/// that of images_folder/a/1.jpg is labels_folder/a/1.txt. An image without a
/// label file, or with an empty one, has no objects. Of images with objects the
/// header is read for their size.
///
/// \param classes  Class names by number; empty: the lines of classes.txt in
///                 `labels_folder`.
/// \throws DataError naming file and line, if a label file is damaged, no label
///         file has an image, one has none or two, a header is damaged, there
///         are no classes, or a box is bad (see BadBoxes); IoError;
///         c10::ValueError for bad classes.
BoxAnnotations read_yolo(
    const std::filesystem::path& labels_folder,
    const std::filesystem::path& images_folder,
    const std::vector<std::string>& classes = {},
    const YoloOptions& options = {});

}  // namespace tern
