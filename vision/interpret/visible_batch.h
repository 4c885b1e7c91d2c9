#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/decode_predictions.h"
#include "tern/vision/interpret/picture_grid.h"

namespace tern {

/// The images of a batch as bytes, and its targets.
struct VisibleBatch {
  torch::Tensor images;   // [N, H, W, 1 or 3] kByte, CPU
  torch::Tensor targets;  // [N, ...], CPU; undefined if there are none
  Tensors all_targets;    // of which `targets` is the first
};

/// Applies the batch transforms of `data` that keep the images as bytes, so not
/// their normalization. Floating images outside of 0..1 are scaled to their
/// range.
///
/// \throws c10::ValueError if the inputs are not images.
VisibleBatch visible_batch(const DataBunch& data, Batch batch, bool augments);

/// Returns the target type that `data` describes, or else that of targets of
/// this dtype and shape.
/// \param targets  [N, ...].
TargetKind target_kind(const DataBunch& data, const torch::Tensor& targets);

/// Refuses data of boxes or points, which `who` cannot show.
/// \throws c10::ValueError that says what to use instead.
void refuse_boxes_and_points(const DataBunch& data, const char* who);

/// Returns the color of a prediction's text: green or red, neutral for
/// numbers.
Rgb answer_color(TargetKind kind, bool is_right);

/// Formats a target, or a prediction in the form of one.
/// \param target  Of one sample, without N; not a mask.
std::string target_text(
    TargetKind kind,
    const torch::Tensor& target,
    const std::vector<std::string>& classes);

/// Boxes to draw over an image, in the colors of their classes, named by class
/// and score.
/// \param boxes   [K, 4], x1, y1, x2, y2.
/// \param labels  [K]; those below 0 are left out.
/// \param scores  [K], or undefined: there are none.
std::vector<MarkedBox> box_marks(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& scores,
    const std::vector<std::string>& names);

/// Points to draw over an image, each number in its own color.
/// \param points   [P, 2], x, y.
/// \param visible  [P] kBool, or undefined: all are.
std::vector<MarkedPoint> point_marks(
    const torch::Tensor& points,
    const torch::Tensor& visible);

/// Returns the names of points with their colors; none if they have none.
std::vector<CaptionLine> point_legend(const std::vector<std::string>& names);

/// The images of one sample with a mask, side by side: the plain image, the
/// target over it and, unless it is undefined, the prediction over it, whose
/// caption has the share of right pixels among those of a known class.
/// \param image         [H, W, 1 or 3] kByte.
/// \param target, pred  [h, w] integers.
/// \param classes       Pixels of others keep their color.
std::vector<Picture> mask_pictures(
    const torch::Tensor& image,
    const torch::Tensor& target,
    const torch::Tensor& pred,
    int64_t classes);

/// Returns the classes that occur in `masks` with their colors there.
std::vector<CaptionLine> mask_legend(
    const Tensors& masks,
    const std::vector<std::string>& names,
    int64_t classes);

}  // namespace tern
