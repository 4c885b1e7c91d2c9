#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// The objects of an image from a Pascal VOC annotation file, with the numbers
/// that are there.
struct VocFile {
  struct Object {
    std::string name;
    /// As written: VOC's are pixels from 1 on, the last one included.
    double xmin = 0, ymin = 0, xmax = 0, ymax = 0;
    bool difficult = false;
    /// On which it begins, from 1.
    size_t line = 0;
  };

  /// Empty: the file does not tell.
  std::string file_name;
  /// In pixels; 0: the file does not tell.
  int64_t width = 0, height = 0;
  std::vector<Object> objects = {};
};

/// Parses a Pascal VOC annotation (XML): filename, size and objects, of each
/// the name, bndbox and difficult. Parts, poses and whatever else it holds are
/// skipped; a document type is not looked at, so that no entity expands.
///
/// \param path  For error messages.
/// \throws DataError naming the line, if it is no XML or not UTF-8, its root is
///         not `annotation`, or an object has no name or no bndbox of four
///         numbers.
///
/// Source: "The PASCAL Visual Object Classes Challenge 2012 Development Kit".
VocFile parse_voc(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace tern
