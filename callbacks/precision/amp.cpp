#include "tern/callbacks/precision/amp.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner_parts.h"
#include "tern/learner/precision/autocast.h"

namespace tern {

namespace {

torch::ScalarType dtype_for(torch::Device device, const AmpOptions& options) {
  const torch::ScalarType dtype = options.dtype.value_or(
      device.is_cuda() ? torch::kHalf : torch::kBFloat16);
  TORCH_CHECK_VALUE(
      dtype == torch::kHalf || dtype == torch::kBFloat16,
      fmt::format(
          "[to_amp] dtype is {}; expected kHalf or kBFloat16.",
          c10::toString(dtype)));
  TORCH_CHECK_VALUE(
      !options.clip || *options.clip > 0,
      fmt::format(
          "[to_amp] clip is {}; expected a number > 0.",
          options.clip.value_or(0)));
  return dtype;
}

GradScalerOptions scaler_options(
    torch::Device device,
    torch::ScalarType dtype,
    const AmpOptions& options) {
  GradScalerOptions scaler = options.scaler.value_or(
      GradScalerOptions{.enabled = dtype == torch::kHalf});
  scaler.device = device.type();
  return scaler;
}

}  // namespace

Amp::Amp(torch::Device device, AmpOptions options)
    : Amp(device, dtype_for(device, options), std::move(options)) {}

Amp::Amp(torch::Device device, torch::ScalarType dtype, AmpOptions options)
    : LossScaling(scaler_options(device, dtype, options), {}, options.clip),
      dtype_(dtype),
      options_(std::move(options)) {}

void Amp::forward(Learner& learn, c10::function_ref<void()> compute) {
  if (!learn.state().training && !options_.amp_in_valid) return compute();
  const AutocastGuard autocast(learn.data().device, dtype_);
  compute();
}

std::string Amp::precision_text() const {
  return "autocast, fp32 weights";
}

void Amp::on_loss_begin(Learner& learn) {
  if (options_.loss_fp32) outputs_to_fp32(learn.state());
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
