#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// An object from a YOLO label file, in the units of the file.
struct YoloObject {
  /// Class index; may be negative.
  int64_t label = 0;
  /// Center and size of the box, relative to the image: 1 is the whole width or
  /// height.
  double cx = 0, cy = 0, width = 0, height = 0;
  /// Line in the file, from 1.
  size_t line = 0;
};

/// Parses a YOLO label file, with a line `class cx cy width height` for each
/// object.
///
/// \param polygons  True: converts lines of a segmentation dataset, `class x1
///                  y1 x2 y2 x3 y3 ...`, to the bounding box of the polygon.
///                  False: such lines are an error.
/// \param path      For error messages.
/// \throws DataError that names the line if it has the wrong number of values,
///         if a value is not a number, or if the class is not a whole number.
///
/// Source: docs.ultralytics.com, "Object Detection Datasets Overview".
std::vector<YoloObject> parse_yolo(
    std::span<const uint8_t> bytes,
    const std::string& path,
    bool polygons = false);

/// Parses a list of names, one per line, such as classes.txt. Skips spaces
/// around names and empty lines at the end.
///
/// \param what  What the names are, for error messages, such as "class".
/// \throws DataError that names the line if a name is empty, duplicated or not
///         UTF-8.
std::vector<std::string> parse_names(
    std::span<const uint8_t> bytes,
    const std::string& path,
    const std::string& what);

}  // namespace tern
