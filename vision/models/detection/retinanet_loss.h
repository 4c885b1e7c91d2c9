#pragma once

#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/loss.h"

namespace tern {

/// How predicted boxes are compared with the objects.
enum class BoxLoss {
  l1,    ///< absolute differences of the boxes' codes; torchvision's v1
  giou,  ///< 1 - generalized IoU; torchvision's v2
};

struct RetinaNetLossOptions {
  BoxLoss box_loss = BoxLoss::l1;
  /// Of the focal loss: the weight of an object's class (all others have 1 -
  /// alpha), and how much easy anchors are down-weighted.
  double alpha = 0.25, gamma = 2;
  /// An anchor is foreground if its IoU with an object is at least fg_iou, and
  /// background below bg_iou; in between it does not count.
  double fg_iou = 0.5, bg_iou = 0.4;
  /// Weight of the boxes beside the classes.
  double box_weight = 1;
};

/// The loss of a RetinaNet (Lin et al., "Focal Loss for Dense Object
/// Detection", 2017): focal loss of the classes plus the loss of the boxes, in
/// each image divided by its foreground anchors. torchvision's, computed in
/// kFloat (kDouble for outputs of that).
///
///   .loss = tern::retinanet_loss({.box_loss = BoxLoss::giou})
///
/// Outputs are those of RetinaNet. Targets are boxes [N, K, 4], x1, y1, x2, y2
/// in pixels, and labels [N, K] kLong, 0 to C - 1, or -1 for padding, anywhere
/// in the row; further targets are ignored. Boxes without area, which
/// torchvision refuses, count as padding. Without images the loss is 0. Never
/// synchronizes with the device.
/// \throws c10::ValueError unless alpha is in 0..1, gamma and box_weight are
///         finite and >= 0, and 0 <= bg_iou <= fg_iou <= 1. The loss throws it
///         for other outputs or targets, and for a label >= C in host memory;
///         on a GPU, where that check would synchronize, such a label makes the
///         loss NaN.
Loss retinanet_loss(const RetinaNetLossOptions& options = {});

/// Returns the two parts of this loss, 0-dim: of the classes and of the boxes,
/// without `box_weight`.
/// \throws as the loss.
Tensors retinanet_losses(
    const Tensors& outputs,
    const Tensors& targets,
    const RetinaNetLossOptions& options = {});

/// Returns the object that each anchor is matched with: its index in the row,
/// -1 for background, -2 for an anchor that does not count. The anchors with an
/// object's largest IoU are matched however small it is. torchvision's Matcher
/// with `allow_low_quality_matches`, including ties.
/// \param boxes    [N, K, 4]. \param labels  [N, K] kLong.
/// \param anchors  [N, A, 4]. \return  [N, A] kLong.
torch::Tensor match_anchors(
    const torch::Tensor& boxes,
    const torch::Tensor& labels,
    const torch::Tensor& anchors,
    const RetinaNetLossOptions& options = {});

}  // namespace tern
