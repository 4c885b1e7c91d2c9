// The training loop, and evaluation, which is the same without the backward
// pass. loop.h describes each function and names the file that defines it.

#include <optional>
#include <utility>

#include <torch/types.h>

#include "tern/kernels/fast_conv_backward.h"
#include "tern/learner/loop.h"

namespace tern {

Learner& Learner::fit(int64_t epochs, LearningRates lr, Callbacks extra) {
  if (loop::is_fit_skipped(*parts_, epochs, lr)) return *this;
  std::optional<FitScope> fit;
  // If the fit cannot begin on one rank, it does not begin on any rank.
  loop::run_on_all_ranks(*parts_, [&] {
    fit.emplace(*parts_, epochs, lr, std::move(extra));
  });
  fit->run([this] { loop::train_epochs(*parts_); });
  return *this;
}

void loop::train_epochs(LearnerParts& l) {
  TrainState& s = l.state;
  run(l, Event::train_begin);
  begin_training(l);
  for (; has_next_epoch(l); ++s.epoch) {
    forget_validation(l);
    run(l, Event::epoch_begin);
    begin_epoch(l);
    train_one_epoch(l);
    validate_after_epoch(l);
    if (!completes_epoch(l)) break;
    run(l, Event::epoch_end);
    end_epoch(l);
  }
  if (l.stop.requested && s.epoch < s.epochs) {
    s.result = FitResult::interrupted;
    run(l, Event::interrupt);
  }
}

void loop::train_one_epoch(LearnerParts& l) {
  DataLoader::Epoch batches = begin_batches(l);
  while (auto batch = next_batch(l, batches)) {
    start_batch(l, std::move(*batch));
    run(l, Event::batch_begin);
    run_step(l);
    run(l, Event::batch_end);
    end_batch(l);
  }
  end_batches(l);
}

void loop::train_step(LearnerParts& l) {
  TrainState& s = l.state;
  forward(l, /*with_loss=*/true);
  run(l, Event::backward_begin);
  weight_loss(l);
  {
    std::optional<FastConvBackward> fast;
    if (l.data.device.is_cpu()) fast.emplace();
    s.loss_grad.backward();
  }
  finish_backward(l);
  run(l, Event::backward_end);
  sync_decisions(l);
  if (!s.skip_step) {
    run(l, Event::step);
    sync_decisions(l);
  }
  optimizer_step(l);
  if (!s.skip_zero_grad) zero_grad(l);
}

void loop::forward(LearnerParts& l, bool with_loss) {
  TrainState& s = l.state;
  in_forward_precision(l, [&] {
    s.outputs = run_model(l, s.batch_data.inputs);
    if (s.training) follow_first_forward(l);
    run(l, Event::loss_begin);
    if (with_loss) s.loss_grad = s.loss = compute_loss(l);
  });
}

bool loop::evaluate(
    LearnerParts& l,
    const DataLoader& loader,
    bool with_loss,
    const std::function<void()>& each,
    const PassOptions& pass) {
  EvalScope eval(l, pass);
  TrainState& s = l.state;
  DataLoader::Epoch batches = begin_pass(l, loader);
  for (s.batch = 0; auto batch = next_batch(l, batches); ++s.batch) {
    // The dataset may have left out all samples of a batch.
    if (batch->left_out.empty() || batch->size() > 0) {
      start_batch(l, std::move(*batch));
      run(l, Event::batch_begin);
      forward(l, with_loss);
      each();
      run(l, Event::batch_end);
      clear_batch(l);
    }
    if (pass.is_common) sync_validation_stop(l, pass.common_batches);
  }
  const bool is_complete = !l.evaluation.was_cut;
  eval.end();
  return is_complete;
}

}  // namespace tern
