#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tern/vision/datasets/image_items.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// An object in an image.
struct Box {
  /// Left, upper, right and lower edge in pixels of the image, not rounded: the
  /// whole image is 0, 0, width, height.
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  /// Name of its class.
  std::string label = {};
  /// A region with many objects of the class that were not annotated one by
  /// one: COCO's `iscrowd`. It is not trained on, and no detection in it counts
  /// as wrong.
  bool crowd = false;
  /// Area of the object's outline in pixels, by which COCO tells small objects
  /// from large ones; 0: that of the box.
  double area = 0;

  friend bool operator==(const Box&, const Box&) = default;
};

/// A point in an image, such as the left eye: x = 0.5, y = 0.5 is the center of
/// its upper left pixel.
struct Point {
  double x = 0, y = 0;
  /// False: its place is not known, and x and y mean nothing.
  bool visible = true;

  friend bool operator==(const Point&, const Point&) = default;
};

/// The boxes of an image, none or several.
struct ImageBoxes {
  std::vector<Box> boxes;
  /// Size of the image as its annotations give it, which it is then compared
  /// with; 0 x 0: they do not.
  ImageSize image;

  ImageBoxes(  // NOLINT: implicit on purpose
      std::vector<Box> boxes = {},
      ImageSize image = {})
      : boxes(std::move(boxes)), image(image) {}
};

/// Returns the boxes of an item.
using BoxLabeller = std::function<ImageBoxes(const ImageItem&)>;
/// Returns the points of an item, as many for every image, in the same order.
using PointLabeller = std::function<std::vector<Point>(const ImageItem&)>;

/// An image of a file of annotations.
struct AnnotatedImage {
  std::string path;
  ImageBoxes objects;
  /// The number by which the file calls the image, such as COCO's image id.
  int64_t id = 0;
};

/// Images with boxes, as the readers of annotation files return them.
struct BoxAnnotations {
  std::vector<AnnotatedImage> images;
  /// Names of the classes by index.
  std::vector<std::string> classes;
  /// The number by which the file calls each class, such as COCO's category
  /// id; empty: its index.
  std::vector<int64_t> category_ids;

  /// The images, for DataBlock::items.
  ImageItems items() const;
  /// Returns their boxes by path, for DataBlock::boxes.
  BoxLabeller labeller() const;
};

}  // namespace tern
