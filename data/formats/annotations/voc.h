#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// The objects of an image from a Pascal VOC annotation file, with unchanged
/// numbers.
struct VocFile {
  struct Object {
    std::string name;
    /// As written: VOC counts pixels from 1 and includes the last one.
    double xmin = 0, ymin = 0, xmax = 0, ymax = 0;
    bool difficult = false;
    /// Line on which it begins, from 1.
    size_t line = 0;
  };

  /// Empty: not in the file.
  std::string file_name;
  /// In pixels; 0: not in the file.
  int64_t width = 0, height = 0;
  std::vector<Object> objects = {};
};

/// Parses a Pascal VOC annotation (XML): filename, size and objects with name,
/// bndbox and difficult. Skips parts, poses and everything else. A DOCTYPE is
/// ignored, so that no entity is expanded.
///
/// \param path  For error messages.
/// \throws DataError that names the line if it is not XML or not UTF-8, if its
///         root is not `annotation`, or if an object has no name or no bndbox
///         of four numbers.
///
/// Source: "The PASCAL Visual Object Classes Challenge 2012 Development Kit".
VocFile parse_voc(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace tern
