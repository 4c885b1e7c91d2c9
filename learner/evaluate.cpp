// Validation: computes the loss and the metrics over a split.

#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/kernels/check.h"
#include "tern/learner/broadcast.h"
#include "tern/learner/decode_predictions.h"
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
              ? std::string("the Learner has no metrics or no validation data")
              : fmt::format("expected one of: {}", fmt::join(names, ", "))));
}

// Keeps the names of the metrics, so that callbacks read NaN for them in an
// epoch without validation.
void loop::forget_validation(LearnerParts& l) {
  l.evaluation.before_epoch = {l.state.valid_loss, l.state.last_metrics};
  l.state.valid_loss = std::numeric_limits<double>::quiet_NaN();
  l.state.last_metrics.clear();
  if (!l.data.valid) return;
  for (const Metric& metric : l.options.metrics) {
    l.state.last_metrics.push_back({.name = metric.name()});
  }
}

void loop::restore_validation(LearnerParts& l) {
  l.state.valid_loss = l.evaluation.before_epoch.loss;
  l.state.last_metrics = l.evaluation.before_epoch.metrics;
}

void loop::validate_after_epoch(LearnerParts& l) {
  if (!l.data.valid || l.state.is_dry_run || l.state.stop_training ||
      l.stop.requested) {
    return;
  }
  auto validation = evaluate_metrics(
      l,
      Split::valid,
      {.is_common = true, .can_be_cut = true});
  // A pass that was cut short has no result for the whole dataset.
  if (!validation) return;
  l.state.valid_loss = validation->loss;
  l.state.last_metrics = std::move(validation->metrics);
}

Validation Learner::validate(Split split) {
  return *loop::evaluate_metrics(*parts_, split, {});
}

namespace {

// A nested pass uses copies of the metrics, because the outer pass is using the
// originals.
std::vector<Metric> metrics_of_pass(const LearnerParts& l) {
  std::vector<Metric> metrics = l.options.metrics;
  for (Metric& metric : metrics) {
    if (l.evaluation.depth > 0) {
      TERN_CHECK_VALUE(
          metric.can_be_copied(),
          "[Learner::validate] a callback validates during an evaluation, "
          "while the metric {} is being computed; expected a metric whose "
          "class has a copy constructor, so that a copy can be used.",
          metric.name());
      metric = metric.fresh_copy();
    }
    metric.reset();
    metric.set_ignore_index(l.options.loss.ignore_index());
  }
  return metrics;
}

// Sums of values and of their weights: a pair for the loss and one for each
// value that callbacks have logged. Each quotient is a mean, also after summing
// over ranks.
torch::Tensor weighted_sums(
    const LearnerParts& l,
    const Tensors& batch_losses,
    const std::vector<double>& loss_counts) {
  const auto options =
      torch::TensorOptions(l.data.device).dtype(torch::kDouble);
  const torch::Tensor losses =
      batch_losses.empty() ? torch::zeros({0}, options)
                           : torch::stack(batch_losses).to(torch::kDouble);
  const torch::Tensor weights =
      torch::tensor(loss_counts, torch::kDouble).to(losses.device());
  Tensors sums = {losses.dot(weights), weights.sum()};
  for (const LoggedSum& value : l.evaluation.logged_in_last) {
    sums.push_back(value.sum.to(losses.device()));
    sums.push_back(torch::scalar_tensor(value.samples, losses.options()));
  }
  return torch::stack(sums);
}

void check_has_evaluated(bool has_batches, Split split) {
  TERN_CHECK_VALUE(
      has_batches,
      "[Learner::validate] the {} loader has no batch; expected at least "
      "one sample.",
      to_string(split));
}

// A rank whose samples were all left out has logged no values; it adds zero to
// the values that the others have logged. Called by all ranks.
void agree_on_logged(LearnerParts& l, bool has_batches, Split split) {
  const std::optional<int64_t> rank = loop::first_rank_where(l, has_batches);
  check_has_evaluated(rank.has_value(), split);
  std::string names;
  for (const LoggedSum& value : l.evaluation.logged_in_last) {
    names += value.name + "\n";
  }
  std::istringstream lines(
      broadcast_text(*l.ranks.communicator, std::move(names), *rank));
  if (has_batches) return;
  for (std::string name; std::getline(lines, name);) {
    l.evaluation.logged_in_last.push_back(
        {.name = name, .sum = torch::zeros({}, torch::kDouble)});
  }
}

// Sums the results of the ranks, each of which has seen a part of the data.
void sum_over_ranks(
    LearnerParts& l,
    std::vector<Metric>& metrics,
    const torch::Tensor& sums) {
  std::string names;
  for (const LoggedSum& value : l.evaluation.logged_in_last) {
    names += value.name + " ";
  }
  l.ranks.communicator->check_equal("values logged in validation", names);
  loop::all_reduce_metrics(l, metrics, sums);
}

// Reads the loss, the metrics and the logged values from the device with one
// synchronization.
Validation read_validation(
    const LearnerParts& l,
    const std::vector<Metric>& metrics,
    const torch::Tensor& sums) {
  const torch::Tensor pairs = sums.view({-1, 2});
  const Tensors means = (pairs.select(1, 0) / pairs.select(1, 1)).unbind();
  Tensors values = {means[0]};
  Validation result;
  for (const Metric& metric : metrics) {
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

}  // namespace

void loop::update_metrics(LearnerParts& l, std::vector<Metric>& metrics) {
  if (metrics.empty()) return;
  const Tensors& outputs = l.state.outputs;
  const Tensors& targets = l.state.batch_data.targets;
  const torch::Tensor nan = has_nan(outputs);
  Tensors detections;  // decoded once for all metrics
  if (std::ranges::any_of(metrics, &Metric::takes_detections)) {
    const std::vector<OutputInfo> info = output_info(l.data, l.options.loss);
    if (info[0].activation == Activation::detections) {
      detections = activate(outputs, info);
      detections.resize(3);  // without further outputs
    }
  }
  for (Metric& metric : metrics) {
    const bool takes_detections =
        metric.takes_detections() && !detections.empty();
    metric.update(takes_detections ? detections : outputs, targets, nan);
  }
}

std::optional<Validation>
loop::evaluate_metrics(LearnerParts& l, Split split, const PassOptions& pass) {
  std::vector<Metric> metrics = metrics_of_pass(l);
  const DataLoader& whole = l.data.loader(split);
  const bool is_common = pass.is_common && l.ranks.communicator;
  const DataLoader& loader = is_common && l.ranks.shard_data
                                 ? shard_of(l, whole, /*equal_batches=*/false)
                                 : whole;
  Tensors batch_losses;
  std::vector<double> loss_counts;
  const auto count_batch = [&] {
    batch_losses.push_back(l.state.loss);
    loss_counts.push_back(l.step.loss_count);
    update_metrics(l, metrics);
  };
  const PassOptions made = {
      .is_common = is_common,
      .can_be_cut = pass.can_be_cut,
      .common_batches = is_common ? common_batches(l, whole) : 0};
  if (!evaluate(l, loader, /*with_loss=*/true, count_batch, made)) return {};
  if (is_common) {
    agree_on_logged(l, !batch_losses.empty(), split);
  } else {
    check_has_evaluated(!batch_losses.empty(), split);
  }
  const torch::Tensor sums = weighted_sums(l, batch_losses, loss_counts);
  if (is_common) sum_over_ranks(l, metrics, sums);
  return read_validation(l, metrics, sums);
}

}  // namespace tern
