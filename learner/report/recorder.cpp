#include "tern/learner/recorder.h"

#include <algorithm>
#include <cmath>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/hyper_parameter.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

constexpr double kBeta = 0.98;
// Bounds what waits on the device when nobody looks for a long time.
constexpr size_t kMaxPending = 8192;

}  // namespace

const std::vector<double>& Recorder::losses() {
  flush();
  return losses_;
}

const std::vector<double>& Recorder::smooth_losses() {
  flush();
  return smooth_losses_;
}

void Recorder::flush() {
  read_logged();
  if (pending_.empty()) return;
  const torch::Tensor values =
      torch::stack(pending_).to(torch::kCPU, torch::kDouble);
  const auto first_batch = static_cast<int64_t>(losses_.size());
  pending_.clear();
  for (int64_t i = 0; i < values.size(0); ++i) {
    record(values.const_data_ptr<double>()[i]);
  }
  flush_scales(first_batch);
}

void Recorder::record(double loss) {
  ++count_;
  average_ = kBeta * average_ + (1 - kBeta) * loss;
  losses_.push_back(loss);
  smooth_losses_.push_back(
      average_ / (1 - std::pow(kBeta, static_cast<double>(count_))));
}

void Recorder::on_train_begin(Learner& learn) {
  average_ = 0;
  count_ = 0;
  learn.state().smooth_loss.reset();
  add_call(learn.parts().call);
}

void Recorder::add_call(std::string call) {
  calls_.push_back({std::move(call), std::ssize(lrs_), std::ssize(epochs_)});
}

void Recorder::on_epoch_begin(Learner&) {
  recorded_batch_ = -1;
  epoch_is_recorded_ = false;
  epoch_start_ = std::chrono::steady_clock::now();
}

void Recorder::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  const PrecisionPolicy* const precision = learn.parts().precision;
  if (state.loss.is_cpu() && state.loss.scalar_type() == torch::kFloat) {
    // Kept, the small tensor would sit between blocks that the next step wants
    // back in one piece.
    flush();
    record(*state.loss.const_data_ptr<float>());
    record_scale(
        static_cast<int64_t>(losses_.size()) - 1,
        precision ? precision->loss_scale() : std::nan(""),
        !state.skip_step && state.step_result == StepResult::skipped);
  } else {
    pending_.push_back(state.loss);
    pending_scales_.push_back(
        {precision ? precision->loss_scale_record() : torch::Tensor(),
         !state.skip_step});
  }
  const auto& options = learn.optimizer().param_groups().back().options();
  lrs_.push_back(options.get_lr());
  momentums_.push_back(optim::momentum(options));
  if (recorded_batch_ < 0 && !state.batch_data.inputs.empty()) {
    input_shape_ = state.batch_data.inputs[0].sizes().vec();
  }
  recorded_batch_ = state.batch;
  if (pending_.size() + pending_logged_.size() >= kMaxPending) flush();
}

void Recorder::on_epoch_end(Learner& learn) {
  flush();
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - epoch_start_;
  average_logged(learn);
  const TrainState& state = learn.state();
  epochs_.push_back(
      {static_cast<int64_t>(epochs_.size()),
       communicator(learn).mean(count_ ? smooth_losses_.back() : std::nan("")),
       state.valid_loss,
       state.last_metrics,
       time.count()});
  epoch_ends_.push_back(static_cast<int64_t>(losses_.size()));
  epoch_is_recorded_ = true;
}

// After an exception the device may be unusable: what it still holds is lost.
void Recorder::on_train_end(Learner& learn) {
  if (!learn.state().failed) return;
  pending_.clear();
  pending_scales_.clear();
  const size_t read = losses_.size();
  lrs_.resize(read);
  momentums_.resize(read);
  forget_logged_from(static_cast<int64_t>(read));
}

}  // namespace tern
