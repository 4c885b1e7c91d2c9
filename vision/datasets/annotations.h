#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tern/vision/datasets/image_items.h"
#include "tern/vision/decode/image_size.h"
#include "tern/vision/transforms/move_targets.h"

namespace tern {

/// An object in an image.
struct Box {
  /// Left, upper, right and lower edge in pixels of the image, not rounded: the
  /// whole image is 0, 0, width, height.
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
  /// Name of its class.
  std::string label = {};
  /// True for a region with many objects of the class that were not annotated
  /// individually: COCO's `iscrowd`. It is not used for training, and
  /// detections inside it are not counted as wrong.
  bool crowd = false;
  /// Area of the object's outline in pixels, by which COCO distinguishes small
  /// and large objects; 0: the area of the box.
  double area = 0;

  friend bool operator==(const Box&, const Box&) = default;
};

/// A point in an image, such as the left eye; x = 0.5, y = 0.5 is the center of
/// the image's upper left pixel.
struct Point {
  double x = 0, y = 0;
  /// False if the position is unknown; x and y are then ignored.
  bool visible = true;

  friend bool operator==(const Point&, const Point&) = default;
};

/// The boxes of an image; may be empty.
struct ImageBoxes {
  std::vector<Box> boxes;
  /// Size of the image according to its annotations, which must match the
  /// actual size; 0 x 0: unknown.
  ImageSize image;
  /// The pixels to which the boxes refer, if the annotations define it. Used
  /// if `AnnotationOptions::pixels` is unknown.
  AnnotatedPixels pixels;

  ImageBoxes(  // NOLINT: implicit on purpose
      std::vector<Box> boxes = {},
      ImageSize image = {},
      AnnotatedPixels pixels = AnnotatedPixels::unknown)
      : boxes(std::move(boxes)), image(image), pixels(pixels) {}
};

/// Returns the boxes of an item.
using BoxLabeller = std::function<ImageBoxes(const ImageItem&)>;
/// Returns the points of an item. All images must have the same number of
/// points, in the same order.
using PointLabeller = std::function<std::vector<Point>(const ImageItem&)>;

/// An image in an annotation file.
struct AnnotatedImage {
  std::string path;
  ImageBoxes objects;
  /// The id of the image in the file, such as COCO's image id.
  int64_t id = 0;
};

/// Images with boxes, as the readers of annotation files return them.
struct BoxAnnotations {
  std::vector<AnnotatedImage> images;
  /// Names of the classes by index.
  std::vector<std::string> classes;
  /// The id of each class in the file, such as COCO's category id; empty: the
  /// indices are the ids.
  std::vector<int64_t> category_ids;

  std::vector<std::string> paths() const;
  /// Returns the images, for DataBlock::items.
  ImageItems items() const;
  /// Returns a function that finds the boxes of an image by its path, for
  /// DataBlock::boxes.
  BoxLabeller labeller() const;
};

}  // namespace tern
