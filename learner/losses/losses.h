#pragma once

#include <torch/types.h>

#include "tern/learner/loss.h"

namespace tern {

/// Cross-entropy against targets that are not quite sure: a share `eps` of
/// each is spread over all C classes (Szegedy et al., "Rethinking the Inception
/// Architecture", 2015).
///
///   .loss = tern::label_smoothing_cross_entropy()
///
///   (1 - eps) * -log p[target] + eps * mean over classes of -log p
///
/// fastai's LabelSmoothingCrossEntropy and PyTorch's label_smoothing.
/// \param eps  In [0, 1]; fastai's default.
/// \throws c10::ValueError otherwise.
Loss label_smoothing_cross_entropy(double eps = 0.1);

struct FocalLossOptions {
  /// 0 is cross-entropy; the larger, the less do easy samples count; >= 0.
  double gamma = 2;
  /// One for each class, [C] kFloat; undefined: all 1.
  torch::Tensor weight = {};
};

/// Cross-entropy that looks away from what is learnt already (Lin et al.,
/// "Focal Loss for Dense Object Detection", 2017).
///
///   .loss = tern::focal_loss({.gamma = 1})
///
///   ce = weight[target] * -log p[target];  mean of (1 - exp(-ce))^gamma * ce
///
/// fastai v2's FocalLoss, with its default, except that the mean is over the
/// targets that are not -100, and 0 where none is. Predictions are [N, C, ...],
/// targets [N, ...] kLong.
/// \throws c10::ValueError unless gamma is a finite number >= 0.
Loss focal_loss(FocalLossOptions options = {});

struct DiceCELossOptions {
  /// Weights of the two losses, >= 0; 0 leaves one out.
  double lambda_dice = 1, lambda_ce = 1;
  /// Of the classes in the cross-entropy, [C] kFloat; undefined: all 1.
  torch::Tensor weight = {};
  /// Pixels of this class count in neither.
  int64_t ignore_index = -100;
  /// Added to overlap and size, so that a class that is nowhere costs nothing.
  double smooth = 1e-5;
};

/// Cross-entropy, which is right for each pixel, and Dice loss, which is right
/// for each class however few pixels it has (Milletari et al., "V-Net", 2016).
///
///   .loss = tern::dice_ce_loss({.ignore_index = 11})
///
///   lambda_dice * mean over samples and classes of 1 - 2 |A and B| / (|A| +
///   |B|), with probabilities for A, + lambda_ce * cross-entropy
///
/// MONAI's DiceCELoss(softmax=True, to_onehot_y=True) with its defaults;
/// fastai's DiceLoss(reduction="mean") with cross-entropy. Samples all of whose
/// pixels are ignored are left out; a batch of them costs 0. Predictions are
/// [N, C, ...] logits of at least two classes, targets [N, ...] kLong.
///
/// In a mean over batches a batch weighs as its cross-entropy, by pixels (by
/// samples where lambda_ce is 0). As it is a sum of two means, gradients
/// accumulated over batches are those of the joint batch where all samples have
/// equally many known pixels.
/// \throws c10::ValueError unless the numbers are finite, >= 0, and not both
///         weights 0.
Loss dice_ce_loss(DiceCELossOptions options = {});

/// The mean distance of points along x and y, in pixels: L1 over those that are
/// visible, and 0 where none is.
///
///   .loss = tern::points_loss()
///
/// Predictions are [N, P, 2], targets points [N, P, 2] and whether each is
/// visible, [N, P] kBool, as PointTargets has them. In a mean over batches a
/// batch weighs by its visible points.
Loss points_loss();

}  // namespace tern
