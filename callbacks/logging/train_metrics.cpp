#include "tern/callbacks/logging/train_metrics.h"

#include <cmath>
#include <string>

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"

namespace tern {

const std::vector<Metric>& TrainMetrics::metrics(const Learner& learn) const {
  return options_.metrics.empty() ? learn.options().metrics : options_.metrics;
}

void TrainMetrics::on_train_begin(Learner& learn) {
  device_ = learn.data().device;
  metrics_.clear();
  for (const Metric& metric : metrics(learn)) {
    metrics_.push_back(metric.fresh_copy());
    metrics_.back().set_ignore_index(learn.options().loss.ignore_index());
  }
  TORCH_CHECK_VALUE(
      !metrics_.empty(),
      "[TrainMetrics] neither the Learner nor the options have a metric; "
      "expected at least one. Set LearnerOptions::metrics or TrainMetrics' "
      "`metrics`.");
  is_partial_.assign(metrics_.size(), false);
}

void TrainMetrics::on_epoch_begin(Learner&) {
  for (Metric& metric : metrics_) metric.reset();
  is_partial_.assign(metrics_.size(), false);
  has_batches_ = false;
}

void TrainMetrics::on_batch_end(Learner& learn) {
  if (!learn.state().training) return;
  loop::update_metrics(parts_of(learn), metrics_);
  has_batches_ = true;
}

void TrainMetrics::on_epoch_end(Learner& learn) {
  if (!has_batches_) return;
  if (communicator(learn).world_size() > 1) {
    const AllReduce all_reduce = loop::all_reduce_over_ranks(parts_of(learn));
    for (Metric& metric : metrics_) metric.sync(all_reduce);
  }
  Tensors values;
  values.reserve(metrics_.size());
  for (const Metric& metric : metrics_) {
    values.push_back(metric.compute());
  }
  const std::vector<double> read = read_numbers(values);
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const std::string name = "train_" + metrics_[i].name();
    if (is_partial_[i]) {
      learn.options().sink->warning(fmt::format(
          "TrainMetrics: {} is NaN in epoch {}: training was resumed in the "
          "middle of this epoch, and the checkpoint does not hold the state of "
          "this metric; implement state_dict and load_state_dict in its class.",
          name,
          learn.state().epoch));
    }
    learn.log(name, is_partial_[i] ? std::nan("") : read[i]);
  }
}

StateDict TrainMetrics::state_dict() const {
  StateDict state;
  if (!has_batches_) return state;
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const auto counted = metrics_[i].state_dict();
    const bool is_whole = counted && !is_partial_[i];
    const std::string prefix = std::to_string(i);
    state.insert(
        prefix + "/is_whole",
        torch::scalar_tensor(is_whole ? 1 : 0, torch::kLong));
    if (!is_whole) continue;
    for (const auto& entry : *counted) {
      state.insert(prefix + "/of/" + entry.key(), entry.value());
    }
  }
  return state;
}

void TrainMetrics::load_state_dict(const StateDict& state) {
  has_batches_ = !state.is_empty();
  for (size_t i = 0; i < metrics_.size(); ++i) {
    metrics_[i].reset();
    is_partial_[i] = false;
    if (!has_batches_) continue;
    const std::string prefix = std::to_string(i);
    is_partial_[i] = saved_value("TrainMetrics", state, prefix + "/is_whole")
                         .item<int64_t>() == 0;
    StateDict counted;
    const std::string entries = prefix + "/of/";
    for (const auto& entry : state) {
      if (!entry.key().starts_with(entries)) continue;
      counted.insert(
          entry.key().substr(entries.size()),
          entry.value().to(device_));
    }
    if (!is_partial_[i]) metrics_[i].load_state_dict(counted);
  }
}

OptionValues TrainMetrics::option_values() const {
  std::vector<std::string> names;
  for (const Metric& metric : options_.metrics) names.push_back(metric.name());
  return {{"metrics", names.empty() ? "the Learner's" : option_text(names)}};
}

}  // namespace tern
