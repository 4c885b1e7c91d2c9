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

/// The meaning of the four numbers of a box in a table, in pixels.
enum class BoxFormat {
  /// Left, upper, right and lower edge.
  xyxy,
  /// Left and upper edge, width and height.
  xywh,
};

struct BoxCsv {
  /// Column of the paths; empty: the first column.
  std::string path_column = "";
  /// Columns of the box and of the class. For a table without a header, the
  /// defaults mean columns "1" to "4" for the box and "5" for the class.
  std::array<std::string, 4> box_columns = {"x1", "y1", "x2", "y2"};
  std::string label_column = "label";
  BoxFormat format = BoxFormat::xyxy;
  /// Separator of the cells: ',', ';' or '\t'.
  char delimiter = ',';
  /// True if the first line contains the column names. Unset: true, unless its
  /// first cell is the path of an existing image.
  std::optional<bool> header = {};
  /// Text that is appended to each path, such as ".jpg".
  std::string suffix = "";
  /// Class names in the order of their indices, such as the training set's
  /// classes; boxes of other classes are bad boxes. Empty: the classes found,
  /// sorted by name.
  std::vector<std::string> classes = {};
  /// Throws if an image is missing. Needs one file system call per image.
  bool check_files = true;
  BadBoxes bad_boxes = BadBoxes::error;
  /// Receives the warning of `BadBoxes::skip`; empty: `terminal()`.
  Sink sink = {};
};

/// Reads boxes from a table with one row per object. An image with several
/// objects has several rows.
///
///   BoxAnnotations boxes = read_boxes_csv("boxes.csv", "photos");
///   BoxAnnotations widths = read_boxes_csv(
///       "train.csv",
///       "photos",
///       {.box_columns = {"left", "top", "width", "height"},
///        .label_column = "class",
///        .format = BoxFormat::xywh});
///
/// A row with an empty box and class, as in RetinaNet's tables ("path,,,,,"),
/// means that the image has no objects. Images are in the order of their first
/// rows. A table does not contain image sizes, so a box that reaches beyond its
/// image is detected here only if it has negative coordinates.
///
/// \param folder  Folder that the paths are relative to.
/// \throws DataError naming the line, if the table is damaged or lacks a
///         column, a cell is not a number, an image is missing, a class name is
///         not UTF-8, or a box is bad (see BadBoxes); IoError; c10::ValueError
///         for invalid options.
BoxAnnotations read_boxes_csv(
    const std::filesystem::path& table,
    const std::filesystem::path& folder,
    const BoxCsv& options = {});

}  // namespace tern
