#pragma once

#include "tern/learner/learner.h"

namespace tern {

struct TuneThresholdOptions {
  /// Weight of recall relative to precision; > 0.
  double beta = 1;
  Split split = Split::valid;
};

/// Chooses the probability threshold above which a label is predicted: the
/// threshold with the largest F-beta over all samples and labels of a split
/// (micro average). It is halfway between two predicted probabilities.
///
///   const double threshold = tune_threshold(learn);
///   learn.export_model("tags.safetensors");   // stores the threshold
///
/// Writes the threshold to `learn.data().outputs`, where `predict`, `get_preds`
/// and exported models read it. For multi-label targets, or for two classes
/// with one output.
/// \return the threshold.
/// \throws c10::ValueError if the outputs are not one probability per target,
///         or if no target is 1.
double tune_threshold(Learner& learn, const TuneThresholdOptions& options = {});

}  // namespace tern
