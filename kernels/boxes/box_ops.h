#pragma once

#include <array>
#include <cstdint>

#include <torch/types.h>

// Operations on boxes {x1, y1, x2, y2} in pixels, with the names and results of
// torchvision.ops. Boxes are kFloat, kDouble, kHalf or kBFloat16 tensors [...,
// 4]. For 16-bit boxes, functions compute in kFloat and return kFloat, unless
// their comment says otherwise. All throw c10::ValueError for other dtypes or
// shapes, or if the tensors are on several devices.
namespace tern {

/// Returns the area of each box: [..., 4] -> [...]. Differentiable.
torch::Tensor box_area(const torch::Tensor& boxes);

/// Returns the intersection over union of each box of one set with each box of
/// another: [..., N, 4] and [..., M, 4] -> [..., N, M]. Differentiable. NaN
/// where both boxes have no area.
///
///   box_iou(objects, anchors);   // [B, K, 4] and [A, 4] -> [B, K, A]
torch::Tensor box_iou(const torch::Tensor& boxes1, const torch::Tensor& boxes2);

/// Returns the generalized IoU, in -1..1; it is negative for boxes that are far
/// apart (Rezatofighi et al., "Generalized Intersection over Union", CVPR
/// 2019). Shapes and gradients as for `box_iou`.
torch::Tensor generalized_box_iou(
    const torch::Tensor& boxes1,
    const torch::Tensor& boxes2);

/// Returns 1 - generalized IoU of each pair of boxes: [..., 4] and [..., 4] ->
/// [...]. Differentiable, also for boxes without area.
/// \param eps  Added to the denominators.
torch::Tensor generalized_box_iou_loss(
    const torch::Tensor& boxes1,
    const torch::Tensor& boxes2,
    double eps = 1e-7);

/// Clips boxes to an image, or the boxes [N, ..., 4] of N images to the size of
/// each image. Keeps the dtype.
/// \param sizes  [N, 2], height and width.
torch::Tensor
clip_boxes_to_image(const torch::Tensor& boxes, int64_t height, int64_t width);
torch::Tensor clip_boxes_to_image(
    const torch::Tensor& boxes,
    const torch::Tensor& sizes);

/// Weights of the codes (x, y, width, height) of a box.
using BoxWeights = std::array<double, 4>;

/// Returns the codes of boxes relative to other boxes, as a detector predicts
/// them: the distance between the centers divided by the other box's size, and
/// the logarithm of the ratio of the sizes. Same as torchvision's
/// BoxCoder.encode. Differentiable.
/// \param reference_boxes  [..., 4], the boxes to encode.
/// \param proposals        [..., 4], the boxes that the codes refer to.
torch::Tensor encode_boxes(
    const torch::Tensor& reference_boxes,
    const torch::Tensor& proposals,
    const BoxWeights& weights = {1, 1, 1, 1});

/// Returns the boxes whose codes relative to `boxes` are `rel_codes`. Same as
/// torchvision's BoxCoder.decode. Sizes grow by at most a factor of 1000 / 16.
/// Differentiable.
/// \param rel_codes, boxes  [..., 4].
torch::Tensor decode_boxes(
    const torch::Tensor& rel_codes,
    const torch::Tensor& boxes,
    const BoxWeights& weights = {1, 1, 1, 1});

/// Returns the indices of the boxes that non-maximum suppression keeps, by
/// descending score: [K'] kLong. A box is dropped if its IoU with a kept box
/// exceeds the threshold. Boxes of equal score keep their order.
///
///   torch::Tensor keep = nms(boxes, scores, 0.5);
///   boxes.index_select(0, keep);
///
/// Synchronizes with the device, since the size of the result depends on the
/// values.
/// \param boxes   [K, 4].
/// \param scores  [K], floating-point.
/// \throws c10::ValueError if iou_threshold is outside 0..1.
torch::Tensor nms(
    const torch::Tensor& boxes,
    const torch::Tensor& scores,
    double iou_threshold);

/// The same for boxes of several classes, which do not suppress each other.
/// Compares the boxes unchanged; torchvision moves the classes of up to 1000
/// boxes apart, which rounds them and lets negative coordinates overlap with
/// another class.
/// \param classes  [K], of an integer dtype.
torch::Tensor batched_nms(
    const torch::Tensor& boxes,
    const torch::Tensor& scores,
    const torch::Tensor& classes,
    double iou_threshold);

/// Returns which boxes non-maximum suppression keeps, for several images at
/// once: [N, K] kBool. Never synchronizes with the device.
/// \param boxes    [N, K, 4], sorted by descending score in each image.
/// \param classes  [N, K] kLong; negative: padding, which is not kept.
/// \throws the errors of `nms`.
torch::Tensor nms_mask(
    const torch::Tensor& boxes,
    const torch::Tensor& classes,
    double iou_threshold);

}  // namespace tern
