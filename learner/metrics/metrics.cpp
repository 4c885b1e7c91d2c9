#include "tern/learner/metrics/metrics.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tern/kernels/check.h"
#include "tern/learner/metrics/class_counts.h"
#include "tern/learner/metrics/mean_of.h"

namespace tern {

namespace {

class MeanOfClasses final : public MeanOf {
 public:
  using MeanOf::MeanOf;
  bool counts_classes() const override { return true; }
};

Metric accuracy_or_errors(const char* name, bool counts_errors, int64_t axis) {
  const auto count = [=](const torch::Tensor& pred,
                         const torch::Tensor& target) -> SumAndCount {
    const ClassNumbers batch = class_numbers(name, pred, target, axis);
    const torch::Tensor known = is_class(batch.target, batch.classes).sum();
    const torch::Tensor hits = (batch.pred == batch.target).sum();
    return {counts_errors ? known - hits : hits, known};
  };
  return std::make_shared<MeanOfClasses>(name, !counts_errors, count);
}

// ---- From the confusion matrix ----

Metric from_counts(
    const std::string& name,
    const CountsFormula& formula,
    int64_t axis) {
  return std::make_shared<ConfusionMetric>(
      name,
      [formula](const torch::Tensor& matrix, int64_t ignore_index) {
        return formula(ClassCounts::of_matrix(matrix, ignore_index));
      },
      axis);
}

Metric from_beta(
    const std::string& name,
    double beta2,
    Average average,
    int64_t axis) {
  return from_counts(name, beta_formula(name, beta2, average), axis);
}

torch::Tensor dice_of(const ClassCounts& all) {
  const torch::Tensor size = all.predicted + all.actual;
  if (size.size(0) == 2 && !all.has_ignored) {
    return torch::where(
        size[1] > 0,
        2 * all.hits[1] / size[1],
        torch::ones_like(size[1]));
  }
  const torch::Tensor comes_up = (size > 0).to(torch::kDouble);
  const torch::Tensor classes = comes_up.sum();
  return torch::where(
      classes > 0,
      ratio(2 * all.hits, size).sum() / classes,
      torch::ones_like(classes));
}

}  // namespace

Metric accuracy(int64_t axis) {
  return accuracy_or_errors("accuracy", false, axis);
}

Metric error_rate(int64_t axis) {
  return accuracy_or_errors("error_rate", true, axis);
}

Metric top_k_accuracy(int64_t k, int64_t axis) {
  TERN_CHECK_VALUE(k >= 1, "[top_k_accuracy] k is {}; expected >= 1.", k);
  const std::string name = fmt::format("top_{}_accuracy", k);
  const auto count = [=](const torch::Tensor& pred,
                         const torch::Tensor& target) -> SumAndCount {
    const auto [scores, targets] = class_scores(name, pred, target, axis);
    TERN_CHECK_VALUE(
        scores.size(-1) >= k,
        "[{}] the model has {} classes; expected at least {}. Use a smaller k.",
        name,
        scores.size(-1),
        k);
    const torch::Tensor best = std::get<1>(scores.topk(k, -1));
    const torch::Tensor hits = best == targets.unsqueeze(-1);
    return {hits.sum(), is_class(targets, scores.size(-1)).sum()};
  };
  return std::make_shared<MeanOfClasses>(name, true, count);
}

Metric precision(Average average, int64_t axis) {
  return from_beta("precision", 0, average, axis);
}

Metric recall(Average average, int64_t axis) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return from_beta("recall", kInfinity, average, axis);
}

Metric f_beta(double beta, Average average, int64_t axis) {
  TERN_CHECK_VALUE(
      beta > 0 && std::isfinite(beta),
      "[f_beta] beta is {}; expected a finite number > 0.",
      beta);
  return from_beta(fmt::format("f{:g}", beta), beta * beta, average, axis);
}

Metric f1(Average average, int64_t axis) {
  return f_beta(1, average, axis);
}

Metric dice(int64_t axis) {
  return from_counts("dice", dice_of, axis);
}

Metric jaccard(Average average, int64_t axis) {
  return from_counts(
      "jaccard",
      jaccard_formula("jaccard", average, /*spares_absent=*/true),
      axis);
}

Metric cohen_kappa(KappaWeights weights, int64_t axis) {
  const auto formula = [weights](const torch::Tensor& matrix) {
    const torch::Tensor index = torch::arange(matrix.size(0), matrix.options());
    const torch::Tensor apart = (index.unsqueeze(0) - index.unsqueeze(1)).abs();
    const torch::Tensor cost =
        weights == KappaWeights::none     ? (apart > 0).to(torch::kDouble)
        : weights == KappaWeights::linear ? apart
                                          : apart.square();
    const torch::Tensor by_chance =
        torch::outer(matrix.sum(1), matrix.sum(0)) / matrix.sum();
    return 1 - (cost * matrix).sum() / (cost * by_chance).sum();
  };
  return std::make_shared<ConfusionMetric>("cohen_kappa", formula, axis);
}

Metric matthews_corrcoef(int64_t axis) {
  const auto formula = [](const torch::Tensor& matrix) {
    const torch::Tensor hits = matrix.diagonal(), predicted = matrix.sum(0),
                        actual = matrix.sum(1), all = matrix.sum();
    const auto spread = [&](const torch::Tensor& counts) {
      return all.square() - counts.square().sum();
    };
    return ratio(
        all * hits.sum() - (predicted * actual).sum(),
        (spread(predicted) * spread(actual)).sqrt());
  };
  return std::make_shared<ConfusionMetric>("matthews_corrcoef", formula, axis);
}

ConfusionMetric::ConfusionMetric(
    std::string name,
    Formula formula,
    int64_t axis)
    : name_(std::move(name)), formula_(std::move(formula)), axis_(axis) {}

ConfusionMetric::ConfusionMetric(
    std::string name,
    std::function<torch::Tensor(const torch::Tensor&)> formula,
    int64_t axis)
    : ConfusionMetric(
          std::move(name),
          [formula = std::move(formula)](const torch::Tensor& matrix, int64_t) {
            return formula(matrix);
          },
          axis) {}

void ConfusionMetric::update(const Tensors& outputs, const Tensors& targets) {
  const auto [pred, target, classes] =
      class_numbers(name_, outputs[0], targets[0], axis_);
  if (!counts_.defined()) {
    counts_ = torch::zeros({classes, classes}, target.options());
  }
  TERN_CHECK_VALUE(
      counts_.size(0) == classes,
      "[{}] this batch has {} classes, but the previous batches had {}; "
      "expected the same number. Call reset() between models.",
      name_,
      classes,
      counts_.size(0));
  // bincount would synchronize with the device to find the largest class.
  const torch::Tensor cell = target.clamp(0, classes - 1) * classes + pred;
  const torch::Tensor counts = is_class(target, classes).to(torch::kLong);
  counts_.view(-1).scatter_add_(0, cell, counts);
}

void ConfusionMetric::sync(const AllReduce& all_reduce) {
  counts_ = all_reduce.or_zeros(counts_);
  if (counts_.defined()) all_reduce(counts_);
}

torch::Tensor ConfusionMetric::compute() const {
  if (!counts_.defined()) return torch::full({}, std::nan(""), torch::kDouble);
  return formula_(counts_.to(torch::kDouble), ignore_index());
}

}  // namespace tern
