#include "tern/callbacks/torch_scheduler.h"

#include <utility>

#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/types.h>

#include "tern/learner/learner.h"

namespace tern {

TorchScheduler::TorchScheduler(Factory factory, Options options)
    : factory_(std::move(factory)), options_(options) {
  TORCH_CHECK_VALUE(
      factory_,
      "[TorchScheduler] the factory is empty; give a function that makes a "
      "scheduler over the optimizer.");
}

TorchScheduler::~TorchScheduler() = default;

void TorchScheduler::on_add(Learner& learn) {
  check_sets_learning_rate_alone(learn, *this);
}

void TorchScheduler::on_train_begin(Learner& learn) {
  optimizer_ = &learn.optimizer();
  first_rates_.clear();
  for (const auto& group : optimizer_->param_groups()) {
    first_rates_.push_back(group.options().get_lr());
  }
  make();
}

// The first `step` counts the beginning. Python's constructor makes it, that of
// LibTorch does not, and its schedules would come one epoch late.
void TorchScheduler::make() {
  scheduler_ = factory_(*optimizer_);
  TORCH_CHECK_VALUE(
      scheduler_,
      "[TorchScheduler] the factory gave no scheduler; expected one over the "
      "optimizer that it was given.");
  scheduler_->step();
  advances_ = 0;
}

void TorchScheduler::advance() {
  scheduler_->step();
  ++advances_;
}

void TorchScheduler::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!options_.per_batch || !state.training) return;
  const bool stepped =
      !state.skip_step && state.step_result != StepResult::skipped;
  if (stepped) advance();
}

void TorchScheduler::on_epoch_end(Learner&) {
  if (!options_.per_batch) advance();
}

void TorchScheduler::on_train_end(Learner&) {
  scheduler_.reset();
  optimizer_ = nullptr;
}

StateDict TorchScheduler::state_dict() const {
  StateDict state;
  state.insert("advances", torch::tensor(advances_));
  return state;
}

// LibTorch's schedulers cannot be saved: they go the same way again, from the
// fit's first rates, to the same bits.
void TorchScheduler::load_state_dict(const StateDict& state) {
  TORCH_CHECK_VALUE(
      state.contains("advances"),
      "[TorchScheduler] the state says not how far the schedule is; expected "
      "that of a TorchScheduler.");
  const int64_t advances = state["advances"].item<int64_t>();
  if (!scheduler_) {
    advances_ = advances;
    return;
  }
  scheduler_.reset();
  for (size_t i = 0; i < first_rates_.size(); ++i) {
    optimizer_->param_groups()[i].options().set_lr(first_rates_[i]);
  }
  make();
  while (advances_ < advances) advance();
}

}  // namespace tern
