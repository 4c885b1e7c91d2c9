#pragma once

#include <torch/types.h>

#include "tern/learner/loss.h"

namespace tern {

/// Returns cross-entropy with label smoothing: a fraction `eps` of each target
/// is spread evenly over all C classes (Szegedy et al., "Rethinking the
/// Inception Architecture", 2015).
///
///   .loss = tern::label_smoothing_cross_entropy()
///
///   (1 - eps) * -log p[target] + eps * mean over classes of -log p
///
/// Like fastai's LabelSmoothingCrossEntropy and PyTorch's label_smoothing.
/// \param eps  In [0, 1]; fastai's default.
/// \throws c10::ValueError if eps is outside [0, 1].
Loss label_smoothing_cross_entropy(double eps = 0.1);

struct FocalLossOptions {
  /// >= 0. 0 gives cross-entropy; larger values reduce the weight of easy
  /// samples.
  double gamma = 2;
  /// Weight of each class, [C] kFloat; undefined: all 1.
  torch::Tensor weight = {};
};

/// Returns focal loss, a cross-entropy that gives less weight to samples that
/// are already classified well (Lin et al., "Focal Loss for Dense Object
/// Detection", 2017).
///
///   .loss = tern::focal_loss({.gamma = 1})
///
///   ce = weight[target] * -log p[target];  mean of (1 - exp(-ce))^gamma * ce
///
/// Like fastai v2's FocalLoss with its default, except that the mean excludes
/// targets of -100, and is 0 if no other targets remain. Predictions are [N, C,
/// ...], targets [N, ...] kLong.
/// \throws c10::ValueError unless gamma is finite and >= 0.
Loss focal_loss(FocalLossOptions options = {});

struct DiceCELossOptions {
  /// Weights of the two losses, >= 0; 0 leaves a loss out.
  double lambda_dice = 1, lambda_ce = 1;
  /// Weight of each class in the cross-entropy, [C] kFloat; undefined: all 1.
  torch::Tensor weight = {};
  /// Pixels of this class are ignored by both losses.
  int64_t ignore_index = -100;
  /// Added to numerator and denominator of Dice, so that an absent class that
  /// is not predicted adds no loss.
  double smooth = 1e-5;
};

/// Returns the weighted sum of Dice loss and cross-entropy. Cross-entropy gives
/// every pixel the same weight; Dice gives every class the same weight, however
/// few pixels it has (Milletari et al., "V-Net", 2016).
///
///   .loss = tern::dice_ce_loss({.ignore_index = 11})
///
///   lambda_dice * mean over samples and classes of (1 - 2 |A and B| / (|A| +
///   |B|)) + lambda_ce * cross-entropy
///
/// A is the predicted region, as probabilities; B is the true region.
///
/// Like MONAI's DiceCELoss(softmax=True, to_onehot_y=True) with its defaults,
/// and like fastai's DiceLoss(reduction="mean") with cross-entropy. Samples
/// whose pixels are all ignored are left out; a batch of such samples has loss
/// 0. Predictions are [N, C, ...] logits of at least two classes, targets [N,
/// ...] kLong.
///
/// In a mean over batches, each batch is weighted as for cross-entropy, by its
/// pixels (by its samples if lambda_ce is 0). Because the loss is the sum of
/// two means, gradients accumulated over batches equal the gradients of one
/// large batch only if all samples have the same number of ignored pixels.
/// \throws c10::ValueError unless the numbers are finite and >= 0, and at least
///         one lambda is > 0.
Loss dice_ce_loss(DiceCELossOptions options = {});

/// Returns the mean L1 distance between predicted and true points, in pixels:
/// the mean of the absolute differences in x and in y over all visible points,
/// 0 if none is visible.
///
///   .loss = tern::points_loss()
///
/// Predictions are [N, P, 2]. Targets are points [N, P, 2] and their visibility
/// [N, P] kBool, as in PointTargets. In a mean over batches, each batch is
/// weighted by its visible points.
Loss points_loss();

}  // namespace tern
