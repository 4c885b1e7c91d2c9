#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

#include "tern/kernels/images/warp_image.h"

namespace tern {

/// Moves the boxes of a batch as their images were transformed, in place: each
/// becomes the smallest upright box around what the new image shows of the old
/// one. A box of which too little is left gets the label -1 and zeros. Boxes that
/// lie whole in the new image get the values of torchvision.transforms.v2; of
/// turned ones that are cut, that gives a larger box, or one where the image shows
/// nothing of the object.
///
/// \param boxes     [N, K, 4] kFloat, x1, y1, x2, y2 in pixels; contiguous.
/// \param labels    [N, K] kLong; boxes with a label below 0 are not touched.
/// \param areas     [N, K] kFloat, areas of the objects' outlines, which change
///                  as those of their boxes do; 0: not known. May be undefined.
/// \param matrices  One per image, from its old pixels to its new ones.
/// \param height, width  Of the new images.
/// \param min_share  A box is kept if at least this share of its moved area lies
///                   in the image, and more than nothing.
/// \throws c10::ValueError if a shape, dtype or count differs from the above.
void move_boxes_(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& areas,
    const std::vector<Matrix3>& matrices,
    int64_t height,
    int64_t width,
    double min_share);

/// Moves the points of a batch as their images were transformed, in place. One
/// that leaves the image is no longer visible, but its place is still written.
///
/// \param points    [N, P, 2] kFloat, x, y in pixels; contiguous.
/// \param visible   [N, P] kBool; points that are not visible become 0, 0.
/// \param matrices, height, width  As of `move_boxes_`.
/// \throws c10::ValueError if a shape, dtype or count differs from the above.
void move_points_(
    const torch::Tensor& points,
    const torch::Tensor& visible,
    const std::vector<Matrix3>& matrices,
    int64_t height,
    int64_t width);

}  // namespace tern
