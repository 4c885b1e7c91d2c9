#include "tern/callbacks/logging/activation_stats.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

constexpr double kNearZeroGradient = 1e-8;

// Returns [3] kFloat on the device.
torch::Tensor stats_of(const torch::Tensor& tensor, double near_zero) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor x = tensor.detach().to(torch::kFloat);
  return torch::stack(
      {x.mean(),
       x.std(/*unbiased=*/false),
       (x.abs() <= near_zero).to(torch::kFloat).mean()});
}

}  // namespace

ActivationStats::ActivationStats(Options options) : options_(options) {
  check_at_least("ActivationStats", "every", options.every, 1);
  check_at_least("ActivationStats", "near_zero", options.near_zero, 0);
}

void ActivationStats::on_train_begin(Learner& learn) {
  is_recording_ = false;
  pending_.clear();
  hooks_ = std::make_unique<ForwardHooks>(
      learn.model(),
      [this, &learn](size_t layer, const torch::Tensor& output) {
        const bool is_of_step = is_recording_ && learn.state().training;
        if (!is_of_step || !output.is_floating_point()) return;
        pending_[{learn.state().iteration, &activations_.at(layer)}] =
            stats_of(output, options_.near_zero);
      });
  if (!gradients_.empty()) return;  // a second fit adds to the first
  for (const std::string& name : hooks_->names()) {
    activations_.push_back({name, {}, {}, {}, {}});
  }
  for (const ModelTensor& p : learn.model().parameters()) {
    gradients_.push_back({p.name, {}, {}, {}, {}});
  }
}

void ActivationStats::on_batch_begin(Learner& learn) {
  const TrainState& state = learn.state();
  // Checked because a callback may evaluate within the step.
  if (state.training) is_recording_ = state.iteration % options_.every == 0;
}

void ActivationStats::on_step(Learner& learn) {
  if (!is_recording_) return;
  size_t next = 0;
  for (const auto& [name, gradient] : learn.gradients()) {
    while (gradients_.at(next).name != name) ++next;
    pending_[{learn.state().iteration, &gradients_.at(next)}] = stats_of(
        gradient.is_sparse() ? gradient.to_dense() : gradient,
        kNearZeroGradient);
  }
}

void ActivationStats::on_batch_end(Learner& learn) {
  if (!learn.state().training) return;
  is_recording_ = false;
  const Recorder& recorder = learn.recorder();
  const bool device_was_read =
      recorder.losses_read().size() == recorder.learning_rates().size();
  if (device_was_read) read();
}

void ActivationStats::on_epoch_end(Learner&) {
  read();
}

// Synchronizes with the device once.
void ActivationStats::read() {
  if (pending_.empty()) return;
  Tensors stats;
  for (const auto& [place, tensor] : pending_) stats.push_back(tensor);
  const torch::Tensor host = torch::stack(stats).cpu();
  const float* at = host.const_data_ptr<float>();
  for (const auto& [place, tensor] : pending_) {
    const auto& [iteration, layer] = place;
    layer->iterations.push_back(iteration);
    layer->mean.push_back(*at++);
    layer->std.push_back(*at++);
    layer->near_zero.push_back(*at++);
  }
  pending_.clear();
}

// After an exception the device may be unusable, so pending values are dropped.
void ActivationStats::on_train_end(Learner& learn) {
  hooks_.reset();
  is_recording_ = false;
  if (!learn.state().failed) read();
  pending_.clear();
}

OptionValues ActivationStats::option_values() const {
  return {
      {"every", option_text(options_.every)},
      {"near_zero", option_text(options_.near_zero)}};
}

}  // namespace tern
