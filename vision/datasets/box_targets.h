#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/image_targets.h"
#include "tern/vision/transforms/move_targets.h"

namespace tern {

/// The boxes of images, which are transformed and clipped like their image. A
/// batch has five targets. K is the largest number of boxes (without crowd
/// regions) of an image in the dataset, C the largest number of crowd regions;
/// both are at least 1:
///
///   targets[0]  boxes [N, K, 4] kFloat: x1, y1, x2, y2 in pixels of the
///               batch's images
///   targets[1]  labels [N, K] kLong: the class of each box; -1 marks an
///               unused entry, which can be anywhere in a row
///   targets[2]  areas [N, K] kFloat of the objects' outlines; 0: unknown
///   targets[3]  crowd regions [N, C, 4] kFloat, as boxes
///   targets[4]  labels [N, C] kLong of the crowd regions, or -1
///
/// `pack_boxes` removes the padding.
class BoxTargets final : public ImageTargets {
 public:
  /// \param paths    Paths of the images, for error messages.
  /// \param images   Boxes of the images.
  /// \param classes  Names of the classes by index.
  /// \throws DataError naming the image if a box is not finite, has no width or
  ///         height, has a negative area, or has a class that is not in
  ///         `classes`; c10::ValueError for an invalid option.
  BoxTargets(
      std::vector<std::string> paths,
      const std::vector<ImageBoxes>& images,
      const std::vector<std::string>& classes,
      const AnnotationOptions& options = {});

  Tensors empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError naming the image if a box extends more than a pixel
  ///         beyond it and `AnnotationOptions::clip` is false, if its size
  ///         differs from its annotations, or if it is unknown whether the
  ///         annotations refer to the image before or after the rotation by its
  ///         EXIF orientation.
  void write(int64_t, const SamplePlan&, const Tensors&, int64_t)
      const override;

  /// True if the annotations of at least one image are known to refer to the
  /// upright image. Images must then be rotated by their EXIF orientation.
  bool refers_to_upright() const;

  /// Total number of boxes, without crowd regions.
  int64_t boxes() const { return objects_.labels.size(0); }

 private:
  /// The rows of all images, concatenated: first[i] to first[i + 1] are the
  /// rows of image i.
  struct Rows {
    torch::Tensor boxes, labels, areas;
    std::vector<int64_t> first = {0};
    /// The largest number of rows of an image, at least 1.
    int64_t most = 1;
  };
  /// True if image `index` has a box or a crowd region.
  bool has_boxes(int64_t index) const;
  void copy_rows(
      const Rows& rows,
      int64_t index,
      ImageSize image,
      const Tensors& targets,
      int64_t slot) const;

  std::vector<std::string> paths_;
  std::vector<ImageSize> image_sizes_;
  std::vector<AnnotatedPixels> pixels_;
  Rows objects_, crowds_;
  AnnotationOptions options_;
};

/// The points of images, which are transformed like their image. All images
/// have the same number of points.
///
///   targets[0]  points [N, P, 2] kFloat: x, y in pixels of the batch's images
///   targets[1]  [N, P] kBool: true if the point is known and in the image
class PointTargets final : public ImageTargets {
 public:
  /// \throws DataError naming the image if its number of points differs from
  ///         the first image's, or if a point is not finite; c10::ValueError
  ///         for an invalid option.
  PointTargets(
      std::vector<std::string> paths,
      const std::vector<std::vector<Point>>& images,
      const AnnotationOptions& options = {});

  Tensors empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError naming the image if it is unknown whether its
  ///         annotations refer to the image before or after the rotation by its
  ///         EXIF orientation.
  void write(int64_t, const SamplePlan&, const Tensors&, int64_t)
      const override;

  /// Number of points per image, P.
  int64_t points() const { return points_.size(1); }

 private:
  std::vector<std::string> paths_;
  torch::Tensor points_, visible_;  // [images, P, 2] and [images, P]
  AnnotationOptions options_;
};

/// Returns the boxes of a batch without padding: [number of boxes, 6] kFloat. A
/// row contains the index of the image in the batch, the label, x1, y1, x2 and
/// y2. Synchronizes with the device.
/// \param targets  Boxes [N, K, 4] and labels [N, K]; further targets are
///                 ignored.
/// \throws c10::ValueError for any other shapes.
torch::Tensor pack_boxes(const Tensors& targets);

}  // namespace tern
