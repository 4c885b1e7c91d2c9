#include "tern/callbacks/logging/train_metrics.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/kernels/check.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"

namespace tern {

void TrainMetrics::on_train_begin(Learner& learn) {
  metrics_.clear();
  for (const Metric& metric :
       options_.metrics.empty() ? learn.options().metrics : options_.metrics) {
    metrics_.push_back(metric.fresh_copy());
    metrics_.back().set_ignore_index(learn.options().loss.ignore_index());
  }
  TORCH_CHECK_VALUE(
      !metrics_.empty(),
      "[TrainMetrics] neither the Learner nor the options have a metric; "
      "expected one. Set LearnerOptions::metrics, or TrainMetrics' own.");
}

void TrainMetrics::on_epoch_begin(Learner&) {
  for (Metric& metric : metrics_) metric.reset();
  has_batches_ = false;
}

void TrainMetrics::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  for (Metric& metric : metrics_) {
    metric.update(state.outputs, state.batch_data.targets);
  }
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
    learn.log("train_" + metrics_[i].name(), read[i]);
  }
}

}  // namespace tern
