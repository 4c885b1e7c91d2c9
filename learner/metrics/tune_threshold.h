#pragma once

#include "tern/learner/learner.h"

namespace tern {

struct TuneThresholdOptions {
  /// How many times as much recall counts as precision; > 0.
  double beta = 1;
  Split split = Split::valid;
};

/// Chooses the probability threshold above which a label is predicted. It is
/// the threshold with the largest F-beta over all samples and labels of a split
/// (micro average), halfway between two probabilities.
///
///   const double threshold = tune_threshold(learn);
///   learn.export_model("tags.safetensors");   // includes it
///
/// Writes the threshold to `learn.data().outputs`, where `predict`, `get_preds`
/// and exported models read it. For several labels per sample, or for two
/// classes with one output.
/// \return the threshold.
/// \throws c10::ValueError if the outputs are not one probability per target,
///         or if no target is 1.
double tune_threshold(Learner& learn, const TuneThresholdOptions& options = {});

}  // namespace tern
