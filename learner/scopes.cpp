#include "tern/learner/scopes.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/learner/step_graph.h"
#include "tern/learner/training_state.h"
#include "tern/learner/trial.h"

namespace tern {

namespace {

void check_has_batches(
    const char* name,
    const DataLoader& loader,
    const char* other_cure) {
  TORCH_CHECK_VALUE(
      loader.size() > 0,
      fmt::format(
          "[Learner::fit] the {} loader has no batch: {} samples, batch size "
          "{}{}. Use a smaller batch size or more data{}.",
          name,
          loader.dataset().size(),
          loader.options().batch_size,
          loader.options().drop_last ? ", the short last batch left out" : "",
          other_cure));
}

void check_trainable(Learner& learner) {
  TORCH_CHECK_VALUE(
      TrainingState::trained_parameters(learner) > 0,
      fmt::format(
          "[Learner::fit] none of the model's {} parameters requires a "
          "gradient, so nothing can be learnt. Call unfreeze(); for a "
          "TorchScript module it sets requires_grad on its parameters.",
          learner.model().parameters().size()));
}

}  // namespace

Learner::FitScope::FitScope(
    Learner& learner,
    int64_t epochs,
    const LearningRates& lr,
    Callbacks extra)
    : learner_(learner),
      extra_(std::move(extra)),
      no_autocast_(learner.data_.device, {}, /*enabled=*/false),
      warnings_(learner.sink()) {
  TORCH_CHECK_VALUE(
      epochs >= 0,
      fmt::format("[Learner::fit] epochs is {}; expected 0 or more.", epochs));
  TORCH_CHECK(
      !learner.is_fitting_,
      "[Learner::fit] this Learner is training already; call fit after the "
      "running one has returned.");
  TORCH_CHECK(
      learner.evaluations_ == 0,
      "[Learner::fit] this Learner is in the middle of validate, get_preds or "
      "predict; call fit after that has returned.");
  check_has_batches("train", learner.data_.loader(Split::train), "");
  if (learner.data_.valid) {
    check_has_batches(
        "valid",
        *learner.data_.valid,
        ", or leave the loader out: data.valid = nullptr");
  }
  check_trainable(learner);
  learner.set_learning_rates(lr);
  settings_before_ = std::exchange(
      learner.fit_settings_,
      TrainingState::fit_settings(learner, epochs, lr));

  TrainState& state = learner.state_;
  state.epoch = 0;
  state.epochs = epochs;
  state.result = FitResult::completed;
  state.stop_training = state.failed = false;
  state.is_trial =
      std::any_of(extra_.begin(), extra_.end(), [](const auto& callback) {
        return dynamic_cast<const Trial*>(callback.get()) != nullptr;
      });
  state.accumulation = {};
  learner.stop_requested_ = learner.stop_wanted_ = false;
  learner.fit_thread_ = std::this_thread::get_id();
  learner.is_fitting_ = true;
  try {
    for (const auto& callback : extra_) {
      learner.add(callback);
      ++added_;
    }
    learner.precision_ = learner.find<PrecisionPolicy>();
  } catch (...) {
    leave();
    learner.fit_settings_ = std::move(settings_before_);
    throw;
  }
}

void Learner::FitScope::leave() {
  for (size_t i = 0; i < added_; ++i) learner_.remove(*extra_[i]);
  TrainState& state = learner_.state_;
  state.training = false;
  learner_.place_ = Place::outside_epoch;
  learner_.first_batch_ = 0;
  learner_.precision_ = nullptr;
  learner_.has_gradients_ = false;
  learner_.window_.close();
  state.loss_grad.reset();
  learner_.end_batch();
  if (learner_.step_graph_) learner_.step_graph_->end(learner_);
  learner_.is_fitting_ = false;
  is_open_ = false;
}

std::exception_ptr Learner::FitScope::run_train_end(bool failed) {
  TrainState& state = learner_.state_;
  state.failed = failed;
  if (failed) state.result = FitResult::failed;
  return learner_.run_all(Event::train_end, failed);
}

void Learner::FitScope::end() {
  const std::exception_ptr error = run_train_end(/*failed=*/false);
  if (error) {
    learner_.state_.failed = true;
    learner_.state_.result = FitResult::failed;
  }
  if (!learner_.state_.is_trial) {
    ++learner_.fits_done_;
    learner_.resumed_logs_.reset();
  }
  learner_.zero_grad();
  leave();
  if (error) std::rethrow_exception(error);
}

// Here after an exception, which goes on to the caller.
Learner::FitScope::~FitScope() {
  if (!is_open_) return;
  try {
    run_train_end(/*failed=*/true);
    learner_.zero_grad();
    leave();
    learner_.fit_settings_ = std::move(settings_before_);
  } catch (...) {
    learner_.is_fitting_ = false;
  }
}

Learner::EvalScope::EvalScope(Learner& learner)
    : learner_(learner),
      was_training_(learner.model_.is_training()),
      no_autocast_(learner.data_.device, {}, /*enabled=*/false),
      warnings_(learner.sink()) {
  TORCH_CHECK(
      !learner.is_fitting_ || learner.fit_thread_ == std::this_thread::get_id(),
      "[Learner] validate, get_preds and predict were called from another "
      "thread than the running fit's; call them from a callback, or after fit "
      "has returned.");
  keep_step();
  ++learner_.evaluations_;
  learner_.model_.eval();
  learner_.state_.training = false;
  const bool is_common =
      std::exchange(learner.begins_common_evaluation_, false);
  try {
    learner_.run(Event::eval_begin);
    if (is_common) learner_.share_buffers();
  } catch (...) {
    leave(/*failed=*/true);
    throw;
  }
}

void Learner::EvalScope::keep_step() {
  TrainState& state = learner_.state_;
  if (!state.training || state.batch_data.inputs.empty()) return;
  step_.emplace(Step{
      state.batch,
      state.batches,
      std::exchange(state.batch_data, {}),
      std::exchange(state.outputs, {}),
      std::exchange(learner_.host_targets_, {}),
      std::exchange(state.loss, {}),
      std::exchange(state.loss_grad, {}),
      std::exchange(state.batch_loss, {})});
}

void Learner::EvalScope::put_step_back() {
  if (!step_) return;
  TrainState& state = learner_.state_;
  state.training = true;
  state.batch = step_->batch;
  state.batches = step_->batches;
  state.batch_data = std::move(step_->batch_data);
  state.outputs = std::move(step_->outputs);
  learner_.host_targets_ = std::move(step_->host_targets);
  state.loss = std::move(step_->loss);
  state.loss_grad = std::move(step_->loss_grad);
  state.batch_loss = std::move(step_->batch_loss);
}

std::exception_ptr Learner::EvalScope::leave(bool failed) {
  is_open_ = false;
  --learner_.evaluations_;
  const std::exception_ptr error = learner_.run_all(Event::eval_end, failed);
  learner_.model_.train(was_training_);
  learner_.state_.outputs.clear();
  learner_.state_.batch_data = {};
  put_step_back();
  return error;
}

void Learner::EvalScope::end() {
  if (const auto error = leave(/*failed=*/false)) std::rethrow_exception(error);
}

// Here after an exception, which goes on to the caller.
Learner::EvalScope::~EvalScope() {
  if (is_open_) leave(/*failed=*/true);
}

}  // namespace tern
