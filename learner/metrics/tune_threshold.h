#pragma once

#include "tern/learner/learner.h"

namespace tern {

struct TuneThresholdOptions {
  /// How many times as much recall counts as precision; > 0.
  double beta = 1;
  Split split = Split::valid;
};

/// Chooses the threshold above which a label is predicted: the one with the
/// largest F-beta over all samples and labels of a split (micro average),
/// halfway between two probabilities.
///
///   const double threshold = tune_threshold(learn);
///   learn.export_model("tags.safetensors");   // has it
///
/// Writes it to `learn.data().outputs`, from where `predict`, `get_preds` and
/// exported models take it. For several labels a sample, or two classes with
/// one output.
/// \return the threshold.
/// \throws c10::ValueError if an output is no probability for each target, or
///         no target is 1.
double tune_threshold(Learner& learn, const TuneThresholdOptions& options = {});

}  // namespace tern
