#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tern/data/batch.h"
#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// The image that the coordinates of boxes and points refer to, where EXIF says
/// that the stored image is to be turned.
enum class AnnotatedPixels {
  /// Not known: such an image is refused, unless the size that its annotations
  /// give tells.
  unknown,
  /// The image as it is shown.
  upright,
  /// The image as it is stored.
  stored,
};

/// How boxes and points follow their image.
struct AnnotationOptions {
  /// A box is dropped where a smaller share of its area than this is left in the
  /// transformed image.
  double min_share = 0.1;
  /// Clips boxes that reach more than a pixel out of the original image, which
  /// are else an error that names the image.
  bool clip = false;
  AnnotatedPixels pixels = AnnotatedPixels::unknown;
  /// Pairs of points that change places where the image is mirrored, such as the
  /// left and the right eye.
  std::vector<std::pair<int64_t, int64_t>> flip_pairs = {};
};

/// \throws c10::ValueError for a share outside of 0..1 or a pair with a number
///         below 0 or twice the same one.
void check_annotation_options(
    const char* where,
    const AnnotationOptions& options);

/// Moves the boxes of a batch as its images are transformed, in place.
/// \param targets   Boxes [N, K, 4] kFloat and labels [N, K] kLong, of which -1
///                  is no box; then, if there are any, areas [N, K] kFloat, crowd
///                  regions [N, C, 4] kFloat and their labels [N, C] kLong.
/// \param matrices  One per image, from the pixels of the boxes to those of the
///                  new image.
/// \param size      Of the new images.
/// \throws c10::ValueError for other shapes or types.
void move_boxes(
    const Tensors& targets,
    const std::vector<Matrix3>& matrices,
    ImageSize size,
    const AnnotationOptions& options);

/// Moves the points of a batch as its images are transformed, in place. Points
/// of a pair change places where their image is mirrored.
/// \param targets  Points [N, P, 2] kFloat, and whether each is visible, [N, P]
///                 kBool.
/// \param matrices, size  As of `move_boxes`.
/// \throws c10::ValueError for other shapes or types, or a pair with a point that
///         there is not.
void move_points(
    const Tensors& targets,
    const std::vector<Matrix3>& matrices,
    ImageSize size,
    const AnnotationOptions& options);

}  // namespace tern
