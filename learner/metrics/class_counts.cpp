#include "tern/learner/metrics/class_counts.h"

#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "tern/kernels/check.h"

namespace tern {

namespace {

std::string shape(const torch::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

// True if `pred` has the shape of `target` plus the classes in `axis`.
bool fits(
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis) {
  if (pred.dim() != target.dim() + 1 || pred.dim() < 2) return false;
  return pred.movedim(axis, -1).sizes().slice(0, target.dim()) ==
         target.sizes();
}

torch::Tensor class_of_one_hot(
    const std::string& metric,
    const torch::Tensor& target,
    int64_t axis) {
  TERN_CHECK_VALUE(
      target.ne(0).sum(axis).eq(1).all().item<bool>(),
      "[{}] the targets {} have the shape of the outputs, but not exactly one "
      "of a sample's {} numbers is 1; expected one-hot targets, or one class "
      "index per sample. Use accuracy_multi() and the other multi-label "
      "metrics for multi-label targets.",
      metric,
      shape(target),
      target.size(axis));
  return target.ne(0).to(torch::kByte).argmax(axis);
}

void check_class_type(const std::string& metric, const torch::Tensor& target) {
  TERN_CHECK_VALUE(
      !target.is_floating_point() && !target.is_complex(),
      "[{}] targets {} are {}; expected class indices. Use target.argmax(1) "
      "for one-hot targets, accuracy_multi() for multi-label targets.",
      metric,
      shape(target),
      c10::toString(target.scalar_type()));
}

}  // namespace

ClassScores class_scores(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis) {
  check_class_type(metric, target);
  TERN_CHECK_VALUE(
      axis >= -pred.dim() && axis < pred.dim(),
      "[{}] axis is {} for outputs of shape {}; expected one of their "
      "dimensions, 1 or -1.",
      metric,
      axis,
      shape(pred));
  const bool has_channel = target.dim() == pred.dim() && target.dim() >= 2 &&
                           target.size(1) == 1 && pred.size(1) != 1;
  const torch::Tensor classes = has_channel ? target.squeeze(1)
                                : is_one_hot(pred, target, axis)
                                    ? class_of_one_hot(metric, target, axis)
                                    : target;
  TERN_CHECK_VALUE(
      fits(pred, classes, axis),
      "[{}] outputs have shape {}, targets {}; expected {} and [N, ...]. {}.",
      metric,
      shape(pred),
      shape(target),
      axis == 1 ? "[N, C, ...]" : "[N, ..., C]",
      axis == 1 && fits(pred, classes, -1)
          ? "For classes in the last dimension set axis to -1"
          : "Give one score per class and one class index per sample");
  const bool is_double = pred.scalar_type() == torch::kDouble;
  return {
      pred.to(is_double ? torch::kDouble : torch::kFloat)
          .movedim(axis, -1)
          .reshape({-1, pred.size(axis)}),
      classes.reshape(-1).to(torch::kLong)};
}

bool is_one_hot(
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis) {
  if (pred.sizes() != target.sizes() || pred.dim() < 2 || axis < -pred.dim() ||
      axis >= pred.dim() || pred.size(axis) == 1 ||
      target.is_floating_point() || target.is_complex()) {
    return false;
  }
  return pred.dim() != 3 || axis != 1;
}

bool is_binary(const torch::Tensor& pred, const torch::Tensor& target) {
  return pred.numel() == target.numel() &&
         (pred.sizes() == target.sizes() ||
          (pred.dim() == target.dim() + 1 && pred.size(1) == 1));
}

ClassNumbers class_numbers(
    const std::string& metric,
    const torch::Tensor& pred,
    const torch::Tensor& target,
    int64_t axis) {
  if (is_binary(pred, target) && !is_one_hot(pred, target, axis)) {
    check_class_type(metric, target);
    return {
        (pred.reshape(-1) > 0).to(torch::kLong),
        target.reshape(-1).to(torch::kLong),
        2};
  }
  const auto [scores, targets] = class_scores(metric, pred, target, axis);
  return {scores.argmax(-1), targets, scores.size(-1)};
}

torch::Tensor is_class(const torch::Tensor& targets, int64_t classes) {
  return (targets >= 0).logical_and_(targets < classes);
}

KnownLabels known_labels(const torch::Tensor& targets) {
  const torch::Tensor is_known = (targets >= 0).logical_and(targets <= 1);
  return {(targets > 0.5).logical_and(is_known), is_known};
}

torch::Tensor ratio(const torch::Tensor& over, const torch::Tensor& under) {
  return torch::where(under > 0, over / under, torch::zeros_like(over));
}

ClassCounts ClassCounts::of_labels(
    const torch::Tensor& hits,
    const torch::Tensor& predicted,
    const torch::Tensor& actual) {
  return {hits, predicted, actual, torch::ones_like(hits)};
}

ClassCounts ClassCounts::of_matrix(
    const torch::Tensor& matrix,
    int64_t ignore_index) {
  ClassCounts all = of_labels(matrix.diagonal(), matrix.sum(0), matrix.sum(1));
  all.has_ignored = ignore_index >= 0 && ignore_index < matrix.size(0);
  if (all.has_ignored) {
    all.predicted[ignore_index] = 0;  // no sample has this class
    all.counted[ignore_index] = 0;
  }
  return all;
}

namespace {

// Counts of all classes together: [1].
ClassCounts pooled(const ClassCounts& all) {
  return ClassCounts::of_labels(
      all.hits.sum().reshape(1),
      all.predicted.sum().reshape(1),
      all.actual.sum().reshape(1));
}

void check_average(
    const std::string& name,
    Average average,
    const ClassCounts& counts) {
  TERN_CHECK_VALUE(
      average != Average::binary || counts.hits.size(0) == 2,
      "[{}] Average::binary with {} classes; expected 2. Use Average::macro.",
      name,
      counts.hits.size(0));
}

torch::Tensor averaged(
    const torch::Tensor& by_class,
    const torch::Tensor& weights,
    const ClassCounts& all,
    Average average) {
  if (average == Average::automatic) {
    average = by_class.size(0) == 2 && !all.has_ignored ? Average::binary
                                                        : Average::macro;
  }
  switch (average) {
    case Average::binary:
      return by_class[1];
    case Average::weighted:
      return ratio((by_class * all.actual).sum(), all.actual.sum());
    default:
      return ratio((by_class * weights).sum(), weights.sum());
  }
}

}  // namespace

CountsFormula
beta_formula(const std::string& name, double beta2, Average average) {
  return [=](const ClassCounts& counts) {
    check_average(name, average, counts);
    const ClassCounts all = average == Average::micro ? pooled(counts) : counts;
    const torch::Tensor by_class =
        std::isinf(beta2)
            ? ratio(all.hits, all.actual)
            : ratio((1 + beta2) * all.hits, beta2 * all.actual + all.predicted);
    return averaged(by_class, all.counted, all, average);
  };
}

CountsFormula
jaccard_formula(const std::string& name, Average average, bool spares_absent) {
  return [=](const ClassCounts& counts) {
    check_average(name, average, counts);
    const ClassCounts all = average == Average::micro ? pooled(counts) : counts;
    const torch::Tensor either = all.predicted + all.actual - all.hits;
    return averaged(
        ratio(all.hits, either),
        spares_absent ? (either > 0).to(torch::kDouble) : all.counted,
        all,
        average);
  };
}

}  // namespace tern
