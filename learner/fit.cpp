// The one training loop of the project, and the pass over validation data that
// is the same without backward.

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
  check_common_begin();
  if (was_done_before_resume(epochs, lr)) return *this;
  FitScope fit(*this, epochs, lr, std::move(extra));
  try {
    train_epochs(epochs);
  } catch (const std::exception& error) {
    run_exception(error);
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
  run(Event::train_begin);
  continue_from_checkpoint(/*in_epoch=*/false);
  check_common_start();
  if (step_graph_) step_graph_->begin(*this);
  while (state_.epoch < epochs && !state_.stop_training && !stop_requested_) {
    forget_validation();
    run(Event::epoch_begin);
    begin_window();
    if (first_batch_ > 0) continue_from_checkpoint(/*in_epoch=*/true);
    place_ = Place::in_epoch;
    train_one_epoch();
    if (data_.valid && !state_.stop_training && !state_.is_trial) {
      validate_after_epoch();
    }
    if (stop_requested_) break;  // a continuation will end this epoch
    place_ = Place::at_epoch_end;
    run(Event::epoch_end);
    agree();
    place_ = Place::outside_epoch;
    ++state_.epoch;
  }
  if (stop_requested_ && state_.epoch < epochs) {
    state_.result = FitResult::interrupted;
    run(Event::interrupt);
  }
}

void Learner::train_one_epoch() {
  TrainState& s = state_;
  s.batch = batches_done_ = std::exchange(first_batch_, 0);
  const DataLoader& train = training_loader();
  DataLoader::Epoch batches = train.epoch(epochs_begun_++, batches_done_);
  model_.train();
  s.training = true;
  s.stop_epoch = false;
  s.batches = train.size();
  // A step that has begun is completed: a stop falls between steps.
  while (auto batch =
             batches.next(window_.is_open() ? nullptr : &stop_requested_)) {
    s.skip_step = s.skip_zero_grad = false;
    start_batch(std::move(*batch));
    run(Event::batch_begin);
    plan_step();
    make_step();
    ++s.iteration;
    ++batches_done_;
    run(Event::batch_end);
    agree();
    if (stop_requested_ && !window_.is_open()) s.stop_training = true;
    end_batch();
    ++s.batch;
    if (s.stop_epoch || s.stop_training) break;
  }
  // What a window that was ended from outside has accumulated goes nowhere.
  if (window_.is_open()) zero_grad();
  window_.close();
  // Also when the loader was waited for in vain.
  if (stop_requested_) s.stop_training = true;
}

void Learner::train_step() {
  TrainState& s = state_;
  forward(/*with_loss=*/true);
  run(Event::backward_begin);
  weigh_loss();
  s.loss_grad.backward();
  s.loss = s.loss.detach();
  s.loss_grad.reset();
  complete_gradients();
  run(Event::backward_end);
  agree();
  if (!s.skip_step) {
    run(Event::step);
    agree();
  }
  step();
  if (!s.skip_zero_grad) zero_grad();
}

void Learner::forward(bool with_loss) {
  TrainState& s = state_;
  std::optional<AutocastGuard> autocast;
  if (s.autocast_dtype) autocast.emplace(data_.device, s.autocast_dtype);
  s.outputs = run_model(s.batch_data.inputs);
  run(Event::loss_begin);
  if (with_loss) s.loss_grad = s.loss = compute_loss();
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
    run(Event::batch_begin);
    forward(with_loss);
    each();
    run(Event::batch_end);
    end_batch();
    if (stop && *stop) break;
  }
  if (stop && *stop) s.stop_training = true;
  eval.end();
}

Validation Learner::validate(Split split) {
  return evaluate_metrics(split, /*is_common=*/false);
}

// The loss and every metric over all batches.
// \param is_common  All ranks evaluate together, each its share.
Validation Learner::evaluate_metrics(Split split, bool is_common) {
  for (Metric& metric : options_.metrics) metric.reset();
  Tensors losses;
  std::vector<double> sizes;
  const DataLoader& whole = data_.loader(split);
  is_common = is_common && communicator_;
  const DataLoader& loader =
      is_common ? shard_of(whole, /*equal_batches=*/false) : whole;
  begins_common_evaluation_ = is_common;
  evaluate(loader, /*with_loss=*/true, [&] {
    losses.push_back(state_.loss);
    sizes.push_back(static_cast<double>(state_.batch_data.size()));
    for (Metric& metric : options_.metrics) {
      metric.update(state_.outputs, state_.batch_data.targets);
    }
    if (is_common) agree_to_stop_validation(whole);
  });
  TORCH_CHECK_VALUE(
      !losses.empty() || state_.stop_training,
      fmt::format(
          "[Learner::validate] the {} loader has no batch; expected at least "
          "one sample.",
          to_string(split)));
  Validation result;
  if (losses.empty()) return result;
  // One wait for the device: the losses of all batches and every metric.
  const torch::Tensor all = torch::stack(losses).to(torch::kDouble);
  const torch::Tensor weights =
      torch::tensor(sizes, torch::kDouble).to(all.device());
  const torch::Tensor sums = torch::stack({all.dot(weights), weights.sum()});
  if (is_common) add_up_over_ranks(sums);
  Tensors values = {sums[0] / sums[1]};
  for (const Metric& metric : options_.metrics) {
    values.push_back(metric.compute().to(torch::kDouble).reshape({}));
  }
  const torch::Tensor read = torch::stack(values).cpu();
  result.loss = read.const_data_ptr<double>()[0];
  for (size_t i = 0; i < options_.metrics.size(); ++i) {
    result.metrics.push_back(
        {options_.metrics[i].name(), read.const_data_ptr<double>()[i + 1]});
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
