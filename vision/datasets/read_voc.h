#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

/// What becomes of the objects that Pascal VOC marks as difficult.
enum class DifficultObjects {
  /// Box::crowd: not trained on, and neither missed nor wrong when they are
  /// detected, as in VOC's own evaluation.
  crowd,
  /// Objects like all others.
  keep,
  /// Left out: a detection of one counts as wrong.
  skip,
};

struct VocOptions {
  /// File with the images to read, a name without suffix on each line, such as
  /// ImageSets/Main/train.txt; empty: all .xml files of the folder, by name.
  std::filesystem::path image_set = {};
  /// Class names in the order of their indices, as of the training set; another
  /// class is a bad box. Empty: those found, sorted by name.
  std::vector<std::string> classes = {};
  DifficultObjects difficult = DifficultObjects::crowd;
  /// The numbers are edges in pixels from 0 on, as many tools write them, and
  /// are taken as they are; false: VOC's own pixels, see `read_voc`.
  bool zero_based = false;
  /// Takes the image with the name of the .xml file and any suffix, in place of
  /// that in `filename`, which many tools do not update.
  bool match_by_stem = false;
  /// Throws if an image is missing; costs a file system call for each.
  bool check_files = true;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Receives the warning of `BadBoxes::skip`; empty: `terminal()`.
  Sink sink = {};
};

/// Reads the boxes of a folder of Pascal VOC annotations, an .xml file for each
/// image.
///
///   BoxAnnotations voc = read_voc(
///       "VOC2012/Annotations",
///       "VOC2012/JPEGImages",
///       {.image_set = "VOC2012/ImageSets/Main/train.txt"});
///
/// VOC counts pixels from 1 on, and `xmax` and `ymax` are the last ones of the
/// object. As edges they are xmin - 1, ymin - 1, xmax, ymax, Detectron2's
/// convention: the box of a whole image of 500 x 375, 1 1 500 375, becomes
/// 0, 0, 500, 375.
///
/// The size of the image is that of the file; 0 or none if it is unknown.
///
/// \throws DataError naming file and line, if a file is damaged or missing, two
///         files name one image, an image is missing, a class name is not
///         UTF-8, or a box is bad (see BadBoxes); IoError; c10::ValueError for
///         bad options.
BoxAnnotations read_voc(
    const std::filesystem::path& annotations_folder,
    const std::filesystem::path& images_folder,
    const VocOptions& options = {});

}  // namespace tern
