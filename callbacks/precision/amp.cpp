#include "tern/callbacks/precision/amp.h"

#include <torch/types.h>

#include "tern/learner/learner_parts.h"
#include "tern/learner/precision/autocast.h"

namespace tern {

Amp::Amp(torch::Device device, const AmpOptions& options)
    : LossScaling("to_amp", settings_for(device, options)),
      amp_in_valid_(options.amp_in_valid) {}

LossScaling::Settings Amp::settings_for(
    torch::Device device,
    const AmpOptions& options) {
  const torch::ScalarType dtype = options.dtype.value_or(
      device.is_cuda() ? torch::kHalf : torch::kBFloat16);
  GradScalerOptions scaler = options.scaler.value_or(
      GradScalerOptions{.enabled = dtype == torch::kHalf});
  scaler.device = device.type();
  return {
      .dtype = dtype,
      .scaler = scaler,
      .clip = options.clip,
      .loss_fp32 = options.loss_fp32};
}

void Amp::forward(Learner& learn, c10::function_ref<void()> compute) {
  if (!learn.state().training && !amp_in_valid_) return compute();
  const AutocastGuard autocast(learn.data().device, dtype());
  compute();
}

std::string Amp::precision_text() const {
  return "autocast, fp32 weights";
}

Learner& Learner::to_amp() {
  return to_amp(AmpOptions{});
}

Learner& Learner::to_amp(const AmpOptions& options) {
  const auto callback = std::make_shared<Amp>(parts_->data.device, options);
  to_fp32();
  parts_->options.loss.check_autocast(parts_->data.device);
  return add(callback);
}

}  // namespace tern
