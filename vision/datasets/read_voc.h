#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

/// How `read_voc` treats objects that Pascal VOC marks as difficult.
enum class DifficultObjects {
  /// Sets Box::crowd. The objects are not used for training, do not count as
  /// missed, and detections within them do not count as wrong. (VOC's own
  /// evaluation ignores only detections that match such an object.)
  crowd,
  /// Keeps them as normal objects.
  keep,
  /// Removes them; detections of them count as wrong.
  skip,
};

struct VocOptions {
  /// File that lists the images to read, one name without suffix per line, such
  /// as ImageSets/Main/train.txt; empty: all .xml files of the folder, sorted
  /// by name.
  std::filesystem::path image_set = {};
  /// Class names in the order of their indices, such as the training set's
  /// classes; boxes of other classes are bad boxes. Empty: the classes found,
  /// sorted by name.
  std::vector<std::string> classes = {};
  DifficultObjects difficult = DifficultObjects::crowd;
  /// True if the coordinates are edges that start at 0, as many tools write
  /// them; they are then used unchanged. False for VOC's original convention;
  /// see `read_voc`.
  bool zero_based = false;
  /// Finds an image by the name of its .xml file, with any image suffix,
  /// instead of by `filename`, which many tools do not update.
  bool match_by_stem = false;
  /// Throws if an image is missing. Needs one file system call per image.
  bool check_files = true;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Receives the warning of `BadBoxes::skip`; empty: `terminal()`.
  Sink sink = {};
};

/// Reads the boxes of a folder of Pascal VOC annotations, one .xml file per
/// image.
///
///   BoxAnnotations voc = read_voc(
///       "VOC2012/Annotations",
///       "VOC2012/JPEGImages",
///       {.image_set = "VOC2012/ImageSets/Main/train.txt"});
///
/// VOC numbers pixels from 1, and `xmax` and `ymax` are the last pixels of the
/// object. The box edges are therefore xmin - 1, ymin - 1, xmax, ymax, as in
/// Detectron2: the box 1 1 500 375 of a whole image of 500 x 375 becomes 0, 0,
/// 500, 375.
///
/// The image size is taken from the .xml file; 0 or a missing size means
/// unknown.
///
/// \throws DataError naming file and line, if a file is damaged or missing, two
///         files name the same image, an image is missing, a class name is not
///         UTF-8, or a box is bad (see BadBoxes); IoError; c10::ValueError for
///         invalid options.
BoxAnnotations read_voc(
    const std::filesystem::path& annotations_folder,
    const std::filesystem::path& images_folder,
    const VocOptions& options = {});

}  // namespace tern
