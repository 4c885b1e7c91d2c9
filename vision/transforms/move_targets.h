#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tern/data/batch.h"
#include "tern/kernels/images/warp_image.h"
#include "tern/vision/decode/image_size.h"

namespace tern {

/// The image to which the coordinates of boxes and points refer, if the EXIF
/// orientation rotates or flips the stored image.
enum class AnnotatedPixels {
  /// Unknown. An image with such an EXIF orientation is an error, unless the
  /// image size in its annotations resolves it.
  unknown,
  /// The image as displayed, after the EXIF orientation.
  upright,
  /// The image as stored, before the EXIF orientation.
  stored,
};

/// How boxes and points are transformed with their image.
struct AnnotationOptions {
  /// Drops a box if less than this fraction of its area remains in the
  /// transformed image.
  double min_share = 0.1;
  /// Clips boxes that extend more than a pixel beyond the original image. If
  /// false, such a box is an error that names the image.
  bool clip = false;
  AnnotatedPixels pixels = AnnotatedPixels::unknown;
  /// Pairs of points to swap when the image is flipped, such as the left and
  /// the right eye.
  std::vector<std::pair<int64_t, int64_t>> flip_pairs = {};
};

/// \throws c10::ValueError for a min_share outside 0..1, or a flip pair with a
///         negative number or a number that occurs twice.
void check_annotation_options(
    const char* where,
    const AnnotationOptions& options);

/// Transforms the boxes of a batch along with its images, in place.
/// \param targets   Boxes [N, K, 4] kFloat and labels [N, K] kLong, where -1 is
///                  padding; optionally areas [N, K] kFloat; then optionally
///                  crowd regions [N, C, 4] kFloat and their labels [N, C]
///                  kLong.
/// \param matrices  One per image, from pixels of the boxes' coordinates to
///                  pixels of the new image.
/// \param size      Size of the new images.
/// \throws c10::ValueError for any other shapes or dtypes.
void move_boxes(
    const Tensors& targets,
    const std::vector<Matrix3>& matrices,
    ImageSize size,
    const AnnotationOptions& options);

/// Transforms the points of a batch along with its images, in place. Swaps the
/// points of each flip pair in flipped images.
/// \param targets  Points [N, P, 2] kFloat, and whether each point is visible,
///                 [N, P] kBool.
/// \param matrices, size  As for `move_boxes`.
/// \throws c10::ValueError for any other shapes or dtypes, or if a flip pair
///         has a number that is not below P.
void move_points(
    const Tensors& targets,
    const std::vector<Matrix3>& matrices,
    ImageSize size,
    const AnnotationOptions& options);

}  // namespace tern
