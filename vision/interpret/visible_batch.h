#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/decode_predictions.h"
#include "tern/vision/interpret/image_grid.h"

namespace tern {

/// The images of a batch as bytes, with its targets.
struct VisibleBatch {
  torch::Tensor images;   // [N, H, W, 1 or 3] kByte, CPU
  torch::Tensor targets;  // [N, ...], CPU; undefined if there are none
  Tensors all_targets;    // all targets; the first is `targets`
};

/// Applies only those batch transforms of `data` that keep the images as bytes,
/// and therefore does not normalize. Floating-point images with values outside
/// 0..1 are rescaled by the batch's minimum and maximum.
///
/// \throws c10::ValueError if the inputs are not images.
VisibleBatch visible_batch(const DataBunch& data, Batch batch, bool augments);

/// Returns the target type that `data` declares, or else infers it from the
/// dtype and shape of the targets.
/// \param targets  [N, ...].
TargetKind target_kind(const DataBunch& data, const torch::Tensor& targets);

/// Rejects data with boxes or points, which `who` cannot show.
/// \throws c10::ValueError that names the function to use instead.
void refuse_boxes_and_points(const DataBunch& data, const char* who);

/// Returns the text color of a prediction: green if right, red if wrong,
/// neutral for regression.
Rgb prediction_color(TargetKind kind, bool is_right);

/// Formats a target, or a prediction in the form of a target.
/// \param target  Target of one sample, without N; not a mask.
std::string target_text(
    TargetKind kind,
    const torch::Tensor& target,
    const std::vector<std::string>& classes);

/// Returns boxes to draw over an image, in the colors of their classes. The
/// name of a box is its class and score.
/// \param boxes   [K, 4], x1, y1, x2, y2.
/// \param labels  [K]; boxes with a label below 0 are left out.
/// \param scores  [K], or undefined for boxes without scores.
std::vector<MarkedBox> box_marks(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& scores,
    const std::vector<std::string>& names);

/// Returns points to draw over an image. Each of the P points has a distinct
/// color.
/// \param points   [P, 2], x, y.
/// \param visible  [P] kBool, or undefined if all are visible.
std::vector<MarkedPoint> point_marks(
    const torch::Tensor& points,
    const torch::Tensor& visible);

/// Returns a legend of the point names with their colors; empty without names.
std::vector<CaptionLine> point_legend(const std::vector<std::string>& names);

/// Returns the images of one sample with a mask, from left to right: the plain
/// image, the target over the image and, unless it is undefined, the prediction
/// over the image. The caption of the prediction has the percentage of pixels
/// predicted correctly, among pixels of a known class.
/// \param image         [H, W, 1 or 3] kByte.
/// \param target, pred  [h, w] integers.
/// \param classes       Number of classes. Pixels of other classes keep their
///                      color.
std::vector<Picture> mask_pictures(
    const torch::Tensor& image,
    const torch::Tensor& target,
    const torch::Tensor& pred,
    int64_t classes);

/// Returns a legend of the classes that occur in `masks`, with their colors.
std::vector<CaptionLine> mask_legend(
    const Tensors& masks,
    const std::vector<std::string>& names,
    int64_t classes);

}  // namespace tern
