// The one training loop of the project, and the pass over validation data that
// is the same without backward.

#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/autocast.h"
#include "tern/learner/learner.h"
#include "tern/learner/scopes.h"
#include "tern/learner/step_graph.h"

namespace tern {

Learner& Learner::fit(int64_t epochs, LearningRates lr, Callbacks extra) {
  if (was_done_before_resume(epochs, lr)) return *this;
  FitScope fit(*this, epochs, lr, std::move(extra));
  try {
    train_epochs(epochs);
  } catch (const std::exception& error) {
    if (state_.on_error) state_.on_error(error);
    explain_out_of_memory(
        error,
        state_.loss_grad.defined() ? "the backward pass"
                                   : "the optimizer's step");
    throw;
  }
  fit.end();
  return *this;
}

void Learner::train_epochs(int64_t epochs) {
  run(&Callback::on_train_begin);
  continue_from_checkpoint(/*in_epoch=*/false);
  if (step_graph_) step_graph_->begin(*this);
  while (state_.epoch < epochs && !state_.stop_training && !stop_requested_) {
    state_.valid_loss = std::numeric_limits<double>::quiet_NaN();
    state_.last_metrics.clear();
    run(&Callback::on_epoch_begin);
    if (first_batch_ > 0) continue_from_checkpoint(/*in_epoch=*/true);
    place_ = Place::in_epoch;
    train_one_epoch();
    if (data_.valid && !state_.stop_training && !state_.is_trial) {
      validate_after_epoch();
    }
    if (stop_requested_) break;  // a continuation will end this epoch
    place_ = Place::at_epoch_end;
    run(&Callback::on_epoch_end);
    place_ = Place::outside_epoch;
    ++state_.epoch;
  }
  if (stop_requested_ && state_.epoch < epochs) {
    state_.result = FitResult::interrupted;
    if (state_.on_interrupt) state_.on_interrupt();
  }
}

void Learner::train_one_epoch() {
  TrainState& s = state_;
  s.batch = batches_done_ = std::exchange(first_batch_, 0);
  const DataLoader& train = data_.loader(Split::train);
  DataLoader::Epoch batches = train.epoch(epochs_begun_++, batches_done_);
  model_.train();
  s.training = true;
  s.stop_epoch = false;
  s.batches = train.size();
  for (; auto batch = batches.next(&stop_requested_); ++s.batch) {
    s.skip_step = s.skip_zero_grad = false;
    start_batch(std::move(*batch));
    run(&Callback::on_batch_begin);
    step_graph_ ? step_graph_->step(*this) : train_step();
    ++s.iteration;
    ++batches_done_;
    run(&Callback::on_batch_end);
    if (stop_requested_) s.stop_training = true;
    end_batch();
    if (s.stop_epoch || s.stop_training) break;
  }
  // Also when the loader was waited for in vain.
  if (stop_requested_) s.stop_training = true;
}

void Learner::train_step() {
  TrainState& s = state_;
  {
    std::optional<AutocastGuard> autocast;
    if (s.autocast_dtype) autocast.emplace(data_.device, s.autocast_dtype);
    s.outputs = forward(s.batch_data.inputs);
    run(&Callback::on_loss_begin);
    s.loss_grad = s.loss = compute_loss();
  }
  run(&Callback::on_backward_begin);
  s.loss_grad.backward();
  s.loss = s.loss.detach();
  s.loss_grad.reset();
  run(&Callback::on_backward_end);
  run(&Callback::on_step);
  if (!s.skip_step) step();
  run(&Callback::on_step_end);
  if (!s.skip_zero_grad) zero_grad();
}

template <class Each>
void Learner::evaluate(
    const DataLoader& loader,
    bool with_loss,
    const Each& each) {
  EvalScope eval(*this);
  TrainState& s = state_;
  DataLoader::Epoch batches = loader.epoch(augmented_pass_.value_or(0));
  s.batches = loader.size();
  const std::atomic<bool>* const stop =
      is_fitting_ ? &stop_requested_ : nullptr;
  for (s.batch = 0; auto batch = batches.next(stop); ++s.batch) {
    start_batch(std::move(*batch));
    run(&Callback::on_batch_begin);
    {
      std::optional<AutocastGuard> autocast;
      if (s.autocast_dtype) autocast.emplace(data_.device, s.autocast_dtype);
      s.outputs = forward(s.batch_data.inputs);
      run(&Callback::on_loss_begin);
      if (with_loss) s.loss = compute_loss();
    }
    each();
    run(&Callback::on_batch_end);
    end_batch();
    if (stop && *stop) break;
  }
  if (stop && *stop) s.stop_training = true;
  eval.end();
}

Validation Learner::validate(Split split) {
  for (Metric& metric : options_.metrics) metric.reset();
  Tensors losses;
  std::vector<double> sizes;
  const DataLoader& whole = data_.loader(split);
  const int64_t common_batches =
      ranks_ && is_fitting_ ? batches_of_all_ranks(whole) : 0;
  evaluate(ranks_ ? shard_of(whole) : whole, /*with_loss=*/true, [&] {
    losses.push_back(state_.loss);
    sizes.push_back(static_cast<double>(state_.batch_data.size()));
    for (Metric& metric : options_.metrics) {
      metric.update(state_.outputs, state_.batch_data.targets);
    }
    if (state_.batch < common_batches) share_wish_to_stop();
  });
  TORCH_CHECK_VALUE(
      !losses.empty() || state_.stop_training,
      fmt::format(
          "[Learner::validate] the {} loader has no batch; expected at least "
          "one sample.",
          to_string(split)));
  Validation result;
  // One wait for the device: the losses of all batches and every metric.
  Tensors values;
  if (!losses.empty()) {
    const torch::Tensor all = torch::stack(losses).to(torch::kDouble);
    const torch::Tensor weights =
        torch::tensor(sizes, torch::kDouble).to(all.device());
    const torch::Tensor sums = torch::stack({all.dot(weights), weights.sum()});
    if (ranks_) add_up_over_ranks(sums);
    values.push_back(sums[0] / sums[1]);
    for (const Metric& metric : options_.metrics) {
      values.push_back(metric.compute().to(torch::kDouble).reshape({}));
    }
    const torch::Tensor read = torch::stack(values).cpu();
    result.loss = read.const_data_ptr<double>()[0];
    for (size_t i = 0; i < options_.metrics.size(); ++i) {
      result.metrics.push_back(
          {options_.metrics[i].name(), read.const_data_ptr<double>()[i + 1]});
    }
  }
  return result;
}

Predictions Learner::get_preds(Split split) {
  const DataLoader& loader = data_.loader(split);
  return loader.options().training ? get_preds(loader.in_order())
                                   : get_preds(loader);
}

Predictions Learner::get_preds(const DataLoader& loader, bool with_losses) {
  Tensors preds, targets, losses;
  evaluate(loader, /*with_loss=*/false, [&] {
    if (!options_.loss && !host_targets_.empty()) {
      options_.loss = Loss::for_targets(host_targets_);
    }
    preds.push_back(activate(state_.outputs.at(0), activation()).cpu());
    if (!host_targets_.empty()) targets.push_back(host_targets_[0].clone());
    if (with_losses) {
      TORCH_CHECK_VALUE(
          !host_targets_.empty(),
          "[Learner::get_preds] the losses are asked for, but the data have no "
          "targets; leave out with_losses.");
      options_.loss.check_class_indices(state_.outputs, host_targets_);
      losses.push_back(
          options_.loss.per_sample(state_.outputs, state_.batch_data.targets)
              .to(torch::kCPU, torch::kFloat));
    }
  });
  Predictions result;
  if (!preds.empty()) result.preds = torch::cat(preds);
  if (!targets.empty()) result.targets = torch::cat(targets).cpu();
  if (!losses.empty()) result.losses = torch::cat(losses);
  return result;
}

}  // namespace tern
