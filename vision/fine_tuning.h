#pragma once

#include "tern/learner/hyper_parameter.h"

namespace tern {

class Learner;

/// Creates one layer group per block and returns layer-wise learning rates, as
/// used by BEiT and MAE (Clark et al., "ELECTRA", 2020).
///
/// The last layer group, such as the head of a `vision_learner`, is kept; the
/// network before it is split. The learning rate of group i is `lr *
/// decay^(last - i)`, so the last group gets `lr` and each earlier group a
/// smaller learning rate. The groups are the same as for timm's `layer_decay`:
/// the stem is the first group, a downsampling layer belongs to the block after
/// it, and layers after the last block belong to that block. In a DenseNet each
/// dense block is one group, because a factor of 0.75 for each of its 58 layers
/// would practically freeze the first layers.
///
///   auto learn = vision_learner(data, "vit_b_16", {.pretrained = true});
///   const LearningRates rates = layer_decay(learn, 1e-3);   // before any fit
///   learn.fit_one_cycle(1);                                 // the head
///   learn.unfreeze().fit_one_cycle(5, rates);
///
/// Frozen parameters stay frozen. Later calls keep the groups and return new
/// learning rates.
///
/// \throws c10::ValueError if lr is not positive, if decay is not in (0, 1], if
///         the model contains neither one of Tern's networks nor a custom
///         Backbone, or if a fit has already created the optimizer for other
///         groups.
LearningRates layer_decay(Learner& learn, double lr, double decay = 0.75);

/// Sets the stochastic depth ("drop path" in timm) of a Learner's network. In
/// training, the probability that a block is dropped for a sample rises evenly
/// from 0 for the first block to `last` for the last block. May be called at
/// any time. The initial value is from the network's paper.
///
///   set_stochastic_depth(learn, 0.2);
///
/// \throws c10::ValueError if `last` is not in [0, 1), or if the network has no
///         blocks that can be dropped.
void set_stochastic_depth(Learner& learn, double last);

}  // namespace tern
