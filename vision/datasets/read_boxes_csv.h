#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/bad_boxes.h"

namespace tern {

/// What the four numbers of a box in a table mean, in pixels.
enum class BoxFormat {
  /// Left, upper, right and lower edge.
  xyxy,
  /// Left and upper edge, width and height.
  xywh,
};

struct BoxCsv {
  /// Column of the paths; empty: the first one.
  std::string path_column = "";
  /// Columns of the numbers and of the class. In a table without a header they
  /// are called "1" to "5" unless these names are changed: path, numbers,
  /// class.
  std::array<std::string, 4> box_columns = {"x1", "y1", "x2", "y2"};
  std::string label_column = "label";
  BoxFormat format = BoxFormat::xyxy;
  /// Separator of the cells: ',', ';' or '\t'.
  char delimiter = ',';
  /// Whether the first line has the names of the columns. Unset: true, unless
  /// its first cell is the path of an existing image.
  std::optional<bool> header = {};
  /// Appended to each path, such as ".jpg".
  std::string suffix = "";
  /// Class names in the order of their indices, as of the training set; another
  /// class is a bad box. Empty: those found, sorted by name.
  std::vector<std::string> classes = {};
  /// Throws if an image is missing; costs a file system call for each.
  bool check_files = true;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Receives the warning of `BadBoxes::skip`; empty: `terminal()`.
  Sink sink = {};
};

/// Reads boxes from a table with a row for each object; an image has as many
/// rows as it has objects.
///
///   BoxAnnotations boxes = read_boxes_csv("boxes.csv", "photos");
///   BoxAnnotations widths = read_boxes_csv(
///       "train.csv",
///       "photos",
///       {.box_columns = {"left", "top", "width", "height"},
///        .label_column = "class",
///        .format = BoxFormat::xywh});
///
/// A row whose numbers and class are empty, as in RetinaNet's tables
/// ("path,,,,,"), says that its image has no object. Images are in the order of
/// their first rows. A table does not tell their sizes, so only boxes that
/// begin outside are found to be.
///
/// \param folder  Folder that the paths are relative to.
/// \throws DataError naming the line, if the table is damaged or lacks a
///         column, a cell is no number, an image is missing, a class name is
///         not UTF-8, or a box is bad (see BadBoxes); IoError; c10::ValueError
///         for bad options.
BoxAnnotations read_boxes_csv(
    const std::filesystem::path& table,
    const std::filesystem::path& folder,
    const BoxCsv& options = {});

}  // namespace tern
