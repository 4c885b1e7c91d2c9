// The one training loop of the project, and the pass over validation data that
// is the same without backward.

#include <utility>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/loop.h"
#include "tern/learner/scopes.h"

namespace tern {

Learner& Learner::fit(int64_t epochs, LearningRates lr, Callbacks extra) {
  loop::check_common_begin(*parts_);
  if (parts_->continuation &&
      parts_->continuation->was_done_before(*this, epochs, lr)) {
    return *this;
  }
  FitScope fit(*parts_, epochs, lr, std::move(extra));
  try {
    loop::train_epochs(*parts_, epochs);
  } catch (const std::exception& error) {
    loop::run_exception(*parts_, error);
    loop::explain_out_of_memory(
        *parts_,
        error,
        parts_->state.loss_grad.defined() ? "the backward pass"
                                          : "the optimizer's step");
    throw;
  }
  fit.end();
  return *this;
}

void loop::train_epochs(LearnerParts& l, int64_t epochs) {
  run(l, Event::train_begin);
  go_on(l, /*in_epoch=*/false);
  check_common_start(l);
  begin_steps(l);
  while (l.state.epoch < epochs && !l.state.stop_training &&
         !l.stop_requested) {
    forget_validation(l);
    run(l, Event::epoch_begin);
    begin_window(l);
    if (l.first_batch > 0) go_on(l, /*in_epoch=*/true);
    l.place = Place::in_epoch;
    train_one_epoch(l);
    if (l.data.valid && !l.state.stop_training && !l.state.is_trial) {
      validate_after_epoch(l);
    }
    if (l.stop_requested) break;  // a continuation will end this epoch
    l.place = Place::at_epoch_end;
    run(l, Event::epoch_end);
    agree(l);
    l.place = Place::outside_epoch;
    ++l.state.epoch;
  }
  if (l.stop_requested && l.state.epoch < epochs) {
    l.state.result = FitResult::interrupted;
    run(l, Event::interrupt);
  }
}

// After on_train_begin, and once more after on_epoch_begin when the checkpoint
// was made in the middle of an epoch: what callbacks set up there is replaced.
void loop::go_on(LearnerParts& l, bool in_epoch) {
  if (l.continuation && !l.state.is_trial) {
    l.continuation->put_back(*l.self, in_epoch);
  }
}

void loop::train_one_epoch(LearnerParts& l) {
  TrainState& s = l.state;
  s.batch = l.batches_done = std::exchange(l.first_batch, 0);
  const DataLoader& train = training_loader(l);
  DataLoader::Epoch batches = train.epoch(l.epochs_begun++, l.batches_done);
  l.model.train();
  s.training = true;
  s.stop_epoch = false;
  s.batches = train.size();
  // A step that has begun is completed: a stop falls between steps.
  while (auto batch =
             batches.next(l.window.is_open() ? nullptr : &l.stop_requested)) {
    s.skip_step = s.skip_zero_grad = false;
    start_batch(l, std::move(*batch));
    run(l, Event::batch_begin);
    plan_step(l);
    make_step(l);
    ++s.iteration;
    ++l.batches_done;
    run(l, Event::batch_end);
    agree(l);
    if (l.stop_requested && !l.window.is_open()) s.stop_training = true;
    end_batch(l);
    ++s.batch;
    if (s.stop_epoch || s.stop_training) break;
  }
  // What a window that was ended from outside has accumulated goes nowhere.
  if (l.window.is_open()) zero_grad(l);
  l.window.close();
  // Also when the loader was waited for in vain.
  if (l.stop_requested) s.stop_training = true;
}

void loop::train_step(LearnerParts& l) {
  TrainState& s = l.state;
  forward(l, /*with_loss=*/true);
  run(l, Event::backward_begin);
  weigh_loss(l);
  s.loss_grad.backward();
  s.loss = s.loss.detach();
  s.loss_grad.reset();
  complete_gradients(l);
  run(l, Event::backward_end);
  agree(l);
  if (!s.skip_step) {
    run(l, Event::step);
    agree(l);
  }
  step(l);
  if (!s.skip_zero_grad) zero_grad(l);
}

void loop::forward(LearnerParts& l, bool with_loss) {
  TrainState& s = l.state;
  in_forward_precision(l, [&] {
    s.outputs = run_model(l, s.batch_data.inputs);
    run(l, Event::loss_begin);
    if (with_loss) s.loss_grad = s.loss = compute_loss(l);
  });
}

void loop::evaluate(
    LearnerParts& l,
    const DataLoader& loader,
    bool with_loss,
    const std::function<void()>& each) {
  EvalScope eval(l);
  TrainState& s = l.state;
  DataLoader::Epoch batches = loader.epoch(l.augmented_pass.value_or(0));
  s.batches = loader.size();
  const std::atomic<bool>* const stop =
      l.is_fitting ? &l.stop_requested : nullptr;
  for (s.batch = 0; auto batch = batches.next(stop); ++s.batch) {
    start_batch(l, std::move(*batch));
    run(l, Event::batch_begin);
    forward(l, with_loss);
    each();
    run(l, Event::batch_end);
    end_batch(l);
    if (stop && *stop) break;
  }
  if (stop && *stop) s.stop_training = true;
  eval.end();
}

}  // namespace tern
