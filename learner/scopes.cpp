#include "tern/learner/scopes.h"

#include <algorithm>

#include <fmt/format.h>

#include "tern/data/error_text.h"

namespace tern {

Learner::FitScope::FitScope(
    Learner& learner,
    int64_t epochs,
    const LearningRates& lr,
    Callbacks extra)
    : learner_(learner), extra_(std::move(extra)) {
  TORCH_CHECK_VALUE(
      epochs >= 0,
      fmt::format(
          "[Learner::fit] epochs is {}; expected 0 or more.", epochs));
  TORCH_CHECK(
      !learner.is_fitting_,
      "[Learner::fit] this Learner is training already; call fit after the "
      "running one has returned.");
  const DataLoader& train = learner.data_.loader(Split::train);
  TORCH_CHECK_VALUE(
      train.size() > 0,
      fmt::format(
          "[Learner::fit] the train loader has no batch: {} samples, batch "
          "size {}{}. Use a smaller batch size or more data.",
          train.dataset().size(),
          train.options().batch_size,
          train.options().drop_last ? ", the short last batch left out" : ""));
  learner.set_learning_rates(lr);

  TrainState& state = learner.state_;
  state.epoch = 0;
  state.epochs = epochs;
  state.stop_training = state.failed = false;
  learner.stop_requested_ = false;
  learner.is_fitting_ = true;
  try {
    for (const auto& callback : extra_) learner.add(callback);
  } catch (...) {
    leave();
    throw;
  }
}

void Learner::FitScope::leave() {
  for (const auto& callback : extra_) {
    if (callback) learner_.remove(*callback);
  }
  TrainState& state = learner_.state_;
  state.training = false;
  state.loss_grad.reset();
  state.outputs.clear();
  state.batch_data = {};
  learner_.host_targets_.clear();
  learner_.is_fitting_ = false;
  is_open_ = false;
}

void Learner::FitScope::end() {
  learner_.run(&Callback::on_train_end);
  leave();
}

// Here after an exception. Every callback gets its on_train_end, and what one
// throws must not hide the reason why fit failed.
Learner::FitScope::~FitScope() {
  if (!is_open_) return;
  learner_.state_.failed = true;
  for (const auto& callback : Callbacks(learner_.callbacks_)) {
    try {
      callback->on_train_end(learner_);
    } catch (const std::exception& error) {
      learner_.sink().warning(
          fmt::format("on_train_end failed too: {}", message_of(error)));
    } catch (...) {
      learner_.sink().warning("on_train_end failed too");
    }
  }
  try {
    learner_.zero_grad();
    leave();
  } catch (...) {
    learner_.is_fitting_ = false;
  }
}

}  // namespace tern
