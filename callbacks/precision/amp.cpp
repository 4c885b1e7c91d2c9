#include "tern/callbacks/precision/amp.h"

#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/precision/loss_scaling.h"
#include "tern/learner/amp/autocast.h"
#include "tern/learner/learner_parts.h"

namespace tern {

namespace {

LossScaling::Settings settings_of(
    torch::Device device,
    const AmpOptions& options) {
  const torch::ScalarType dtype = options.dtype.value_or(
      device.is_cuda() ? torch::kHalf : torch::kBFloat16);
  GradScalerOptions scaler = options.scaler.value_or(
      GradScalerOptions{.enabled = dtype == torch::kHalf});
  scaler.device = device;
  return {
      .dtype = dtype,
      .scaler = scaler,
      .clip = options.clip,
      .loss_fp32 = options.loss_fp32,
      .keep_fp32 = options.keep_fp32};
}

class Amp final : public LossScaling {
 public:
  Amp(torch::Device device, const AmpOptions& options)
      : LossScaling("to_amp", settings_of(device, options)),
        amp_in_valid_(options.amp_in_valid) {}

  void forward(Learner& learn, c10::function_ref<void()> compute) override {
    if (!learn.state().training && !amp_in_valid_) return compute();
    const AutocastGuard autocast(learn.data().device, dtype());
    LossScaling::forward(learn, compute);
  }
  std::string precision_text() const override {
    return "autocast, fp32 weights";
  }

 private:
  bool amp_in_valid_;
};

}  // namespace

Learner& Learner::to_amp() {
  return to_amp(AmpOptions{});
}

Learner& Learner::to_amp(const AmpOptions& options) {
  check_not_fitting(*this, "Learner::to_amp");
  const auto callback = std::make_shared<Amp>(parts_->data.device, options);
  to_fp32();
  parts_->options.loss.check_autocast(parts_->data.device);
  return add(callback);
}

}  // namespace tern
