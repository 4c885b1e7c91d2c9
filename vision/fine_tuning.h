#pragma once

#include "tern/learner/hyper_parameter.h"

namespace tern {

class Learner;

/// Splits the network below the last layer group, such as the head of a
/// `vision_learner`, into a layer group per block, and returns learning rates
/// that fall by `decay` from each group to the one before it: lr * decay^(last
/// - i). What lies between two blocks belongs to the earlier one, but a Swin's
/// merging of patches is a group of its own. Layer-wise decay as in BEiT, MAE
/// and timm's `layer_decay` (Clark et al., "ELECTRA", 2020).
///
///   auto learn = vision_learner(data, "vit_b_16", {.pretrained = true});
///   const LearningRates rates = layer_decay(learn, 1e-3);   // before any fit
///   learn.fit_one_cycle(1);                                 // the head
///   learn.unfreeze().fit_one_cycle(5, rates);
///
/// What is frozen stays so. A further call returns other rates for the same
/// groups.
///
/// \throws c10::ValueError unless lr > 0 and decay is in (0, 1], the model
///         holds one of Tern's networks or a Backbone of your own, and no fit
///         has made the optimizer for other groups.
LearningRates layer_decay(Learner& learn, double lr, double decay = 0.75);

/// Sets the stochastic depth ("drop path" in timm) of a Learner's network, at
/// any time: in training its first block is dropped for no sample, the last
/// one for a share `last` of them. Networks start with their paper's.
///
///   set_stochastic_depth(learn, 0.2);
///
/// \throws c10::ValueError unless `last` is in [0, 1) and there are blocks that
///         can be dropped.
void set_stochastic_depth(Learner& learn, double last);

}  // namespace tern
