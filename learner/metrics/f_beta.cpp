#include "tern/learner/metrics/f_beta.h"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tern/learner/metrics/confusion_metric.h"

namespace tern {

namespace {

// By class: [C], or one entry for all in one pot.
struct Counts {
  torch::Tensor hits, predicted, actual;
};

Counts counts(const torch::Tensor& matrix, Average average) {
  Counts all{matrix.diagonal(), matrix.sum(0), matrix.sum(1)};
  if (average != Average::micro) return all;
  return {
      all.hits.sum().reshape(1),
      all.predicted.sum().reshape(1),
      all.actual.sum().reshape(1)};
}

// 0 / 0 is 0, as in scikit-learn.
torch::Tensor ratio(const torch::Tensor& over, const torch::Tensor& under) {
  return torch::where(under > 0, over / under, torch::zeros_like(over));
}

torch::Tensor averaged(
    const torch::Tensor& by_class,
    const torch::Tensor& actual,
    Average average) {
  if (average == Average::automatic) {
    average = by_class.size(0) == 2 ? Average::binary : Average::macro;
  }
  switch (average) {
    case Average::binary:
      return by_class[1];
    case Average::weighted:
      return ratio((by_class * actual).sum(), actual.sum());
    default:
      return by_class.mean();
  }
}

// beta2 is the square of beta: 0 gives precision, infinity recall.
Metric from_beta(std::string name, double beta2, Average average) {
  const auto formula = [beta2, average, name](const torch::Tensor& matrix) {
    TORCH_CHECK_VALUE(
        average != Average::binary || matrix.size(0) == 2,
        fmt::format(
            "[{}] Average::binary with {} classes; expected 2. Use "
            "Average::macro.",
            name,
            matrix.size(0)));
    const Counts all = counts(matrix, average);
    const torch::Tensor by_class =
        std::isinf(beta2)
            ? ratio(all.hits, all.actual)
            : ratio((1 + beta2) * all.hits, beta2 * all.actual + all.predicted);
    return averaged(by_class, all.actual, average);
  };
  return std::make_shared<ConfusionMetric>(std::move(name), formula);
}

torch::Tensor dice_of(const torch::Tensor& matrix) {
  const Counts all = counts(matrix, Average::macro);
  const torch::Tensor size = all.predicted + all.actual;
  if (matrix.size(0) == 2) {
    return torch::where(
        size[1] > 0,
        2 * all.hits[1] / size[1],
        torch::ones_like(size[1]));
  }
  const torch::Tensor comes_up = (size > 0).to(torch::kDouble);
  return ratio(2 * all.hits, size).sum() / comes_up.sum();
}

}  // namespace

Metric precision(Average average) {
  return from_beta("precision", 0, average);
}

Metric recall(Average average) {
  return from_beta("recall", std::numeric_limits<double>::infinity(), average);
}

Metric f_beta(double beta, Average average) {
  TORCH_CHECK_VALUE(
      beta > 0 && std::isfinite(beta),
      fmt::format("[f_beta] beta is {}; expected a finite number > 0.", beta));
  return from_beta(fmt::format("f{:g}", beta), beta * beta, average);
}

Metric f1(Average average) {
  return f_beta(1, average);
}

Metric dice() {
  return std::make_shared<ConfusionMetric>("dice", dice_of);
}

}  // namespace tern
