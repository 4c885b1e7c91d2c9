#pragma once

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/loss.h"

namespace tern {

/// Loss that compares predicted boxes with the objects.
enum class BoxLoss {
  l1,    ///< L1 distance of the box codes; torchvision's v1
  giou,  ///< 1 - generalized IoU; torchvision's v2
};

struct RetinaNetLossOptions {
  BoxLoss box_loss = BoxLoss::l1;
  /// In the focal loss, alpha is the weight of an object's class; all other
  /// classes have the weight 1 - alpha. gamma controls how strongly easy
  /// anchors are down-weighted.
  double alpha = 0.25, gamma = 2;
  /// An anchor is foreground if its IoU with an object is at least fg_iou, and
  /// background if all its IoUs are below bg_iou. Anchors in between do not
  /// contribute to the loss.
  double fg_iou = 0.5, bg_iou = 0.4;
  /// Weight of the box loss relative to the classification loss.
  double box_weight = 1;
};

/// The loss of a RetinaNet (Lin et al., "Focal Loss for Dense Object
/// Detection", 2017): focal loss of the classes plus the box loss. Divides the
/// losses of each image by its number of foreground anchors. Same as
/// torchvision's, except that an object that overlaps no anchor is not matched.
/// Computes in kFloat, or in kDouble for kDouble outputs.
///
///   .loss = tern::retinanet_loss({.box_loss = BoxLoss::giou})
///
/// The outputs are as returned by RetinaNet. The targets are boxes [N, K, 4]
/// (x1, y1, x2, y2 in pixels) and labels [N, K] kLong: 0 to C - 1, or -1 for
/// padding, anywhere in the row. Further targets are ignored. Boxes without
/// area, which torchvision rejects, are treated as padding. The loss is 0 for
/// an empty batch. Never synchronizes with the device.
/// \throws c10::ValueError unless alpha is in 0..1, gamma and box_weight are
///         finite and >= 0, and 0 <= bg_iou <= fg_iou <= 1. The loss throws it
///         for outputs or targets of any other form, and for a label >= C in
///         host memory. On a GPU that check would synchronize, so such a label
///         makes the loss NaN instead.
Loss retinanet_loss(const RetinaNetLossOptions& options = {});

/// Returns the two parts of `retinanet_loss` as 0-dim tensors: the
/// classification loss, and the box loss without `box_weight`.
/// \throws the errors of `retinanet_loss`.
Tensors retinanet_losses(
    const Tensors& outputs,
    const Tensors& targets,
    const RetinaNetLossOptions& options = {});

/// Returns the object that each anchor is matched to: its index in the row, -1
/// for background, or -2 for an anchor that does not contribute. The anchors
/// with the largest IoU for an object are matched to it even if that IoU is
/// small. Same as torchvision's Matcher with `allow_low_quality_matches`,
/// including ties.
/// \param boxes    [N, K, 4]
/// \param labels   [N, K] kLong
/// \param anchors  [N, A, 4]
/// \return         [N, A] kLong
torch::Tensor match_anchors(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& anchors,
    const RetinaNetLossOptions& options = {});

}  // namespace tern
