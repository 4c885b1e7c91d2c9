#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// An object from a label file of YOLO, in the units of the file.
struct YoloObject {
  /// Its class by number; it may be below 0.
  int64_t label = 0;
  /// Center and size of the box, relative to the image's: 1 is all of it.
  double cx = 0, cy = 0, width = 0, height = 0;
  /// In the file, from 1.
  size_t line = 0;
};

/// Parses a label file of YOLO: a line `class cx cy width height` for each
/// object.
///
/// \param polygons  Takes lines of a segmentation dataset, `class x1 y1 x2 y2 x3
///                  y3 ...`, as the box around the polygon; otherwise they are
///                  an error.
/// \param path      For error messages.
/// \throws DataError naming the line, if it has another number of numbers, or
///         one is no number or no class.
///
/// Source: docs.ultralytics.com, "Object Detection Datasets Overview".
std::vector<YoloObject> parse_yolo(
    std::span<const uint8_t> bytes,
    const std::string& path,
    bool polygons = false);

/// Parses a list of names, one a line, such as classes.txt. Spaces around a
/// name, and empty lines at the end, are passed over.
///
/// \param what  What they are, for error messages, such as "class".
/// \throws DataError naming the line, if one is empty, duplicated or not UTF-8.
std::vector<std::string> parse_names(
    std::span<const uint8_t> bytes,
    const std::string& path,
    const std::string& what);

}  // namespace tern
