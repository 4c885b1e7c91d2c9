#include "tern/learner/metrics/confusion_metric.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "tern/learner/metrics/class_numbers.h"

namespace tern {

ConfusionMetric::ConfusionMetric(std::string name, Formula formula)
    : name_(std::move(name)), formula_(std::move(formula)) {}

void ConfusionMetric::update(const Tensors& outputs, const Tensors& targets) {
  const auto [pred, target, classes] =
      class_numbers(name_, outputs[0], targets[0]);
  if (!counts_.defined()) {
    counts_ = torch::zeros({classes, classes}, target.options());
  }
  TORCH_CHECK_VALUE(
      counts_.size(0) == classes,
      fmt::format(
          "[{}] this batch has {} classes, the ones before had {}; expected "
          "one "
          "number. Call reset() between models.",
          name_,
          classes,
          counts_.size(0)));
  // bincount would wait for the device to learn the largest class.
  const torch::Tensor is_class = (target >= 0).logical_and(target < classes);
  const torch::Tensor cell = target.clamp(0, classes - 1) * classes + pred;
  counts_.view(-1).scatter_add_(0, cell, is_class.to(torch::kLong));
}

void ConfusionMetric::sync(const AllReduce& all_reduce) {
  TORCH_CHECK_VALUE(
      counts_.defined(),
      fmt::format(
          "[{}] this process has seen no batch, so that it knows no classes; "
          "use fewer processes or more data.",
          name_));
  all_reduce(counts_);
}

torch::Tensor ConfusionMetric::compute() const {
  if (!counts_.defined()) {
    return torch::full(
        {},
        std::numeric_limits<double>::quiet_NaN(),
        torch::kDouble);
  }
  return formula_(counts_.to(torch::kDouble));
}

}  // namespace tern
