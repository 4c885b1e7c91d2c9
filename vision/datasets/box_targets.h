#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/vision/datasets/annotations.h"
#include "tern/vision/datasets/image_targets.h"
#include "tern/vision/transforms/move_targets.h"

namespace tern {

/// Boxes of an image, moved and clipped as the image is transformed. A batch has
/// five targets, each with room for the largest number that an image of the dataset
/// has:
///
///   targets[0]  boxes [N, K, 4] kFloat: x1, y1, x2, y2 in pixels of the batch's
///               images
///   targets[1]  labels [N, K] kLong: the class of each, or -1 where there is no
///               box, which may be at any place of a row
///   targets[2]  areas [N, K] kFloat: of the objects' outlines; 0: not known
///   targets[3]  crowd regions [N, C, 4] kFloat, as boxes
///   targets[4]  their labels [N, C] kLong, or -1
///
/// `pack_boxes` gives them without padding.
class BoxTargets final : public ImageTargets {
 public:
  /// \param paths    Of the images, for errors.
  /// \param images   Their boxes.
  /// \param classes  Names of the classes by index.
  /// \throws DataError naming the image of a box that is not finite, has no size
  ///         or is of another class; c10::ValueError for a bad option.
  BoxTargets(
      std::vector<std::string> paths,
      const std::vector<ImageBoxes>& images,
      const std::vector<std::string>& classes,
      const AnnotationOptions& options = {});

  Tensors empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError naming the image if a box reaches out of it, if it has
  ///         another size than its annotations say, or if it is not known whether
  ///         it was annotated before EXIF turned it.
  void write(int64_t, const SamplePlan&, const Tensors&, int64_t)
      const override;

  /// Boxes in all, without crowd regions.
  int64_t boxes() const { return objects_.labels.size(0); }

 private:
  /// Rows of all images one after another, those of an image from first[i] to
  /// first[i + 1].
  struct Rows {
    torch::Tensor boxes, labels, areas;
    std::vector<int64_t> first = {0};
    /// The largest number of an image, at least 1.
    int64_t most = 1;
  };
  void copy_rows(
      const Rows& rows,
      int64_t index,
      ImageSize image,
      const Tensors& targets,
      int64_t slot) const;

  std::vector<std::string> paths_;
  std::vector<ImageSize> image_sizes_;
  Rows objects_, crowds_;
  AnnotationOptions options_;
};

/// Points of an image, as many for each, moved as the image is transformed.
///
///   targets[0]  points [N, P, 2] kFloat: x, y in pixels of the batch's images
///   targets[1]  [N, P] kBool: whether each is known and lies in the image
class PointTargets final : public ImageTargets {
 public:
  /// \throws DataError naming an image with another number of points than the
  ///         first, or with one that is not finite; c10::ValueError for a bad
  ///         option.
  PointTargets(
      std::vector<std::string> paths,
      const std::vector<std::vector<Point>>& images,
      const AnnotationOptions& options = {});

  Tensors empty(int64_t, ImageSize, const BatchContext&) const override;
  /// \throws DataError naming the image if it is not known whether it was
  ///         annotated before EXIF turned it.
  void write(int64_t, const SamplePlan&, const Tensors&, int64_t)
      const override;

  /// P.
  int64_t points() const { return points_.size(1); }

 private:
  std::vector<std::string> paths_;
  torch::Tensor points_, visible_;  // [images, P, 2] and [images, P]
  AnnotationOptions options_;
};

/// Returns the boxes of a batch without padding, in one list: [sum of K, 6]
/// kFloat, each row the number of the image in the batch, the label, x1, y1, x2,
/// y2. Waits for the device.
/// \param targets  Boxes [N, K, 4] and labels [N, K]; further ones are ignored.
/// \throws c10::ValueError for other shapes.
torch::Tensor pack_boxes(const Tensors& targets);

}  // namespace tern
