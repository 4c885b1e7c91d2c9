#include "tern/callbacks/terminate_on_nan.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

bool is_finite(const torch::Tensor& tensor) {
  return !tensor.is_floating_point() || tensor.isfinite().all().item<bool>();
}

// Returns the name of a batch input that is not finite, or "".
std::string find_input(const TrainState& state) {
  const Tensors& inputs = state.batch_data.inputs;
  const auto bad = std::find_if_not(inputs.begin(), inputs.end(), is_finite);
  if (bad == inputs.end()) return "";
  return fmt::format(
      "Input {} of the batch is not finite: check the data.",
      bad - inputs.begin());
}

// Returns the name of a parameter that is not finite, or `otherwise`.
std::string find_weight(Learner& learn, const char* otherwise) {
  const std::string bad = broken_tensor(learn.model().parameters(), {});
  if (bad.empty()) return otherwise;
  return fmt::format(
      "Parameter {} is not finite, because of the gradients of an earlier "
      "step: use a lower learning rate or clip the gradients.",
      bad);
}

}  // namespace

void TerminateOnNaN::on_train_begin(Learner&) {
  found_.reset();
}

void TerminateOnNaN::on_epoch_begin(Learner& learn) {
  epoch_first_ = checked_ = learn.recorder().losses_read().size();
}

void TerminateOnNaN::on_backward_begin(Learner& learn) {
  TrainState& state = learn.state();
  if (!state.loss.is_cpu()) return;
  const auto loss = state.loss.item<double>();
  if (std::isfinite(loss)) return;
  state.skip_step = true;
  if (found_) return;  // in another part's turn on this batch
  std::string cause = find_input(state);
  if (cause.empty()) {
    cause = find_weight(
        learn,
        "Inputs and weights are finite: model or loss overflow, or divide by "
        "zero.");
  }
  terminate(learn, {state.epoch, state.batch, loss, cause});
}

void TerminateOnNaN::on_batch_end(Learner& learn) {
  if (learn.state().training) look_at_losses_read(learn);
}

void TerminateOnNaN::on_epoch_end(Learner& learn) {
  look_at_losses_read(learn);
}

void TerminateOnNaN::look_at_losses_read(Learner& learn) {
  const TrainState& state = learn.state();
  const std::vector<double>& losses = learn.recorder().losses_read();
  for (; checked_ < losses.size(); ++checked_) {
    if (found_ || std::isfinite(losses[checked_])) continue;
    terminate(
        learn,
        {state.epoch,
         static_cast<int64_t>(checked_ - epoch_first_),
         losses[checked_],
         find_weight(learn, "The weights are finite.")});
  }
}

void TerminateOnNaN::terminate(Learner& learn, Found found) {
  learn.options().sink->warning(fmt::format(
      "TerminateOnNaN: the loss is {} in batch {} of epoch {}. {} Training "
      "ends.",
      found.loss,
      found.batch,
      found.epoch,
      found.cause));
  found_ = std::move(found);
  learn.state().stop_training = true;
}

}  // namespace tern
