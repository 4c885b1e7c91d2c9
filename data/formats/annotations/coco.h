#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tern {

/// The images, boxes and categories of a COCO instances file, unchanged. The
/// caller must check references between them and whether the boxes are valid.
struct CocoFile {
  struct Image {
    int64_t id = 0;
    std::string file_name;
    /// In pixels; 0: not in the file.
    int64_t width = 0, height = 0;
  };

  struct Category {
    int64_t id = 0;
    std::string name;
  };

  struct Annotation {
    int64_t id = 0;
    int64_t image_id = 0, category_id = 0;
    /// Left, upper edge, width and height in pixels.
    std::array<double, 4> bbox = {};
    /// 0: not in the file.
    double area = 0;
    bool crowd = false;
  };

  std::vector<Image> images = {};
  std::vector<Category> categories = {};
  std::vector<Annotation> annotations = {};
};

/// Parses a COCO instances file (JSON), with its top-level keys in any order.
/// Skips segmentations, keypoints and unknown keys. Allocates memory only for
/// the result.
///
/// \param path  For error messages.
/// \throws DataError if it is not JSON or not UTF-8, has more than 64 levels of
///         objects and arrays, lacks images, annotations or categories, or if a
///         field is missing, duplicated or of the wrong type.
///
/// Source: cocodataset.org, "Data format".
CocoFile parse_coco(std::span<const uint8_t> bytes, const std::string& path);

}  // namespace tern
