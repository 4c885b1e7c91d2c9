#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/kernels/images/warp_image.h"

namespace tern {

/// Transforms the boxes of a batch together with their images, in place: each
/// becomes the smallest upright box around the part of the old box that is
/// visible in the new image. If too little of a box is visible, its label
/// becomes -1 and its coordinates 0. Boxes entirely inside the new image get
/// the values of torchvision.transforms.v2. For rotated boxes that are cut,
/// torchvision returns a larger box, or even a box where the image shows
/// nothing of the object.
///
/// \param boxes     [N, K, 4] kFloat, x1, y1, x2, y2 in pixels; contiguous.
/// \param labels    [N, K] kLong; boxes with a negative label are unchanged.
/// \param areas     [N, K] kFloat, areas of the objects' outlines, which change
///                  in proportion to the areas of their boxes; 0: unknown. May
///                  be undefined.
/// \param matrices  One per image, from its old pixels to its new ones.
/// \param height, width  Of the new images.
/// \param min_share  A box is kept if its area inside the image is above zero
///                   and at least this fraction of its transformed area.
/// \throws c10::ValueError if a shape, dtype or count differs from the above.
void move_boxes_(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& areas,
    const std::vector<Matrix3>& matrices,
    int64_t height,
    int64_t width,
    double min_share);

/// Transforms the points of a batch together with their images, in place. A
/// point that leaves the image is no longer visible, but its position is still
/// written.
///
/// \param points    [N, P, 2] kFloat, x, y in pixels; contiguous.
/// \param visible   [N, P] kBool; points that are not visible become 0, 0.
/// \param matrices, height, width  As for `move_boxes_`.
/// \throws c10::ValueError if a shape, dtype or count differs from the above.
void move_points_(
    const torch::Tensor& points,
    const torch::Tensor& visible,
    const std::vector<Matrix3>& matrices,
    int64_t height,
    int64_t width);

}  // namespace tern
