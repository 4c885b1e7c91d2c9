#pragma once

#include "tern/learner/hyper_parameter.h"

namespace tern {

class Learner;

/// Splits the network below the last layer group, such as the head of a
/// `vision_learner`, into a layer group per block, and returns learning rates
/// that fall by `decay` from each group to the one before it: lr * decay^(last
/// - i). As in timm's `layer_decay`, the stem is the first group, a
/// downsampling belongs to the block after it, and what comes after the last
/// block to that; for a DenseNet a dense block is one group, since 0.75 to the
/// power of its 58 layers would freeze the first ones. Layer-wise decay as in
/// BEiT and MAE (Clark et al., "ELECTRA", 2020).
///
///   auto learn = vision_learner(data, "vit_b_16", {.pretrained = true});
///   const LearningRates rates = layer_decay(learn, 1e-3);   // before any fit
///   learn.fit_one_cycle(1);                                 // the head
///   learn.unfreeze().fit_one_cycle(5, rates);
///
/// Frozen parameters stay frozen. A further call returns other learning rates
/// for the same groups.
///
/// \throws c10::ValueError unless lr > 0 and decay is in (0, 1], the model
///         holds one of Tern's networks or a Backbone of your own, and no fit
///         has created the optimizer for other groups.
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
