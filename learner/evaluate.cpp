// Validation: the loss and the metrics over a split.

#include <limits>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/loop.h"

namespace tern {

double metric_value(
    const std::vector<MetricValue>& metrics,
    const std::string& name,
    const char* what) {
  std::vector<std::string> names;
  for (const MetricValue& metric : metrics) {
    if (metric.name == name) return metric.value;
    names.push_back(metric.name);
  }
  C10_THROW_ERROR(
      ValueError,
      fmt::format(
          "[{}[\"{}\"]] there is no such metric; {}.",
          what,
          name,
          names.empty()
              ? std::string("there is none: the Learner has no "
                            "metrics or no validation data")
              : fmt::format("there are: {}", fmt::join(names, ", "))));
}

// Metrics keep their names, so that a callback can ask for them in an epoch
// whose validation did not come: NaN.
void loop::forget_validation(LearnerParts& l) {
  l.state.valid_loss = std::numeric_limits<double>::quiet_NaN();
  l.state.last_metrics.clear();
  if (!l.data.valid) return;
  for (const Metric& metric : l.options.metrics) {
    l.state.last_metrics.push_back({.name = metric.name()});
  }
}

void loop::validate_after_epoch(LearnerParts& l) {
  if (!l.data.valid || l.state.stop_training || l.state.is_trial) return;
  Validation validation = evaluate_metrics(l, Split::valid, /*is_common=*/true);
  // A pass that was stopped in the middle says nothing about the whole set.
  if (l.state.stop_training) return;
  l.state.valid_loss = validation.loss;
  l.state.last_metrics = std::move(validation.metrics);
}

Validation Learner::validate(Split split) {
  return loop::evaluate_metrics(*parts_, split, /*is_common=*/false);
}

Validation
loop::evaluate_metrics(LearnerParts& l, Split split, bool is_common) {
  for (Metric& metric : l.options.metrics) {
    metric.reset();
    metric.set_ignore_index(l.options.loss.ignore_index());
  }
  Tensors losses;
  std::vector<double> sizes;
  const DataLoader& whole = l.data.loader(split);
  is_common = is_common && l.ranks.communicator;
  const DataLoader& loader =
      is_common ? shard_of(l, whole, /*equal_batches=*/false) : whole;
  l.evaluation.is_common = is_common;
  evaluate(l, loader, /*with_loss=*/true, [&] {
    losses.push_back(l.state.loss);
    sizes.push_back(static_cast<double>(l.state.batch_data.size()));
    for (Metric& metric : l.options.metrics) {
      metric.update(l.state.outputs, l.state.batch_data.targets);
    }
    if (is_common) sync_validation_stop(l, whole);
  });
  TERN_CHECK_VALUE(
      !losses.empty() || l.state.stop_training,
      "[Learner::validate] the {} loader has no batch; expected at least "
      "one sample.",
      to_string(split));
  Validation result;
  if (losses.empty()) return result;
  // One wait for the device: the losses of all batches, every metric and what
  // callbacks have logged.
  const torch::Tensor all = torch::stack(losses).to(torch::kDouble);
  const torch::Tensor weights =
      torch::tensor(sizes, torch::kDouble).to(all.device());
  Tensors parts = {all.dot(weights), weights.sum()};
  std::string names;
  for (const LoggedSum& value : l.evaluation.logged_in_last) {
    parts.push_back(value.sum.to(all.device()));
    parts.push_back(torch::scalar_tensor(value.samples, all.options()));
    names += value.name + " ";
  }
  const torch::Tensor sums = torch::stack(parts);
  if (is_common) {
    l.ranks.communicator->check_equal("values logged in validation", names);
    all_reduce_metrics(l, sums);
  }
  const torch::Tensor pairs = sums.view({-1, 2});
  const Tensors means = (pairs.select(1, 0) / pairs.select(1, 1)).unbind();
  Tensors values = {means[0]};
  for (const Metric& metric : l.options.metrics) {
    values.push_back(metric.compute());
    result.metrics.push_back({metric.name()});
  }
  for (const LoggedSum& value : l.evaluation.logged_in_last) {
    result.metrics.push_back({value.name});
  }
  values.insert(values.end(), means.begin() + 1, means.end());
  const std::vector<double> read = read_numbers(values);
  result.loss = read[0];
  for (size_t i = 0; i < result.metrics.size(); ++i) {
    result.metrics[i].value = read[i + 1];
  }
  return result;
}

}  // namespace tern
