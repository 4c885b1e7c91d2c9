#include "tern/learner/metrics/tune_threshold.h"

#include <cmath>

#include <torch/types.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/decode_predictions.h"
#include "tern/learner/metrics/class_counts.h"

namespace tern {

namespace {

/// \param probabilities  [M] kDouble.
/// \param targets        [M], 0 or 1.
double best_threshold(
    const torch::Tensor& probabilities,
    const torch::Tensor& targets,
    double beta) {
  const auto [p, order] =
      probabilities.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const torch::Tensor is_right =
      targets.index_select(0, order).to(torch::kDouble);
  // Hits if the first 1, 2, ... of them are predicted.
  const torch::Tensor hits = is_right.cumsum(0);
  const torch::Tensor predicted =
      torch::arange(1, p.size(0) + 1, torch::kDouble);
  const double beta2 = beta * beta;
  torch::Tensor score = (1 + beta2) * hits / (beta2 * hits[-1] + predicted);
  // No threshold fits between equal probabilities, or below 0.
  const torch::Tensor next =
      torch::cat({p.slice(0, 1), torch::zeros({1}, p.options())});
  score = score.masked_fill(p <= next, -1);
  const auto last = score.argmax().item<int64_t>();
  const auto above = p[last].item<double>(), below = next[last].item<double>();
  const double middle = (above + below) / 2;
  // Probabilities are kFloat, and so is the threshold with which they are
  // compared.
  return static_cast<float>(middle) < static_cast<float>(above) ? middle
                                                                : below;
}

}  // namespace

double tune_threshold(Learner& learn, const TuneThresholdOptions& options) {
  TERN_CHECK_VALUE(
      options.beta > 0 && std::isfinite(options.beta),
      "[tune_threshold] beta is {}; expected a finite number > 0.",
      options.beta);
  const Predictions predictions = learn.get_preds(options.split);
  const TargetKind kind = predictions.info[0].kind;
  TERN_CHECK_VALUE(
      predictions.preds.defined() && predictions.targets.defined() &&
          kind != TargetKind::number && kind != TargetKind::boxes &&
          kind != TargetKind::points &&
          predictions.preds.numel() == predictions.targets.numel(),
      "[tune_threshold] the predictions are {} and the targets {}; expected a "
      "probability for each target, for multi-label targets or for two classes "
      "with one output.",
      shapes_of({predictions.preds}),
      shapes_of({predictions.targets}));
  const int64_t ignored = learn.options().loss.ignore_index();
  const torch::Tensor targets =
      without_class({predictions.targets}, ignored)[0].reshape({-1});
  const auto [target, known] = known_labels(targets);
  const torch::Tensor is_label = target.masked_select(known);
  TERN_CHECK_VALUE(
      is_label.any().item<bool>(),
      "[tune_threshold] no target of the {} data is 1; expected samples with a "
      "label.",
      to_string(options.split));
  const double threshold = best_threshold(
      predictions.preds.reshape({-1}).masked_select(known).to(torch::kDouble),
      is_label,
      options.beta);
  std::vector<OutputInfo>& outputs = learn.data().outputs;
  if (outputs.empty()) outputs.push_back(predictions.info[0]);
  outputs[0].threshold = threshold;
  return threshold;
}

}  // namespace tern
