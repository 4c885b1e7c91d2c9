#include "tern/callbacks/precision/mixed_precision.h"

#include <cmath>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/amp_aware.h"
#include "tern/learner/precision/master_weights.h"

namespace tern {

namespace {

GradScalerOptions scaler_options(
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options) {
  GradScalerOptions scaler;
  // The scale lives where the loss is; this only says not to ask for a GPU.
  scaler.device = torch::kCPU;
  scaler.enabled = dtype == torch::kHalf;
  scaler.init_scale = options.loss_scale.value_or(options.init_scale);
  scaler.growth_interval = options.growth_interval;
  scaler.min_scale = options.loss_scale ? 0 : 1;
  scaler.max_scale = options.max_scale;
  return scaler;
}

void check(const MixedPrecisionOptions& options) {
  const auto positive = [](const char* name, double value) {
    TORCH_CHECK_VALUE(
        std::isfinite(value) && value > 0,
        fmt::format(
            "[MixedPrecision] {} is {}; expected a finite number > 0.",
            name,
            value));
  };
  positive("loss_scale", options.loss_scale.value_or(1));
  positive("init_scale", options.init_scale);
  positive("growth_interval", static_cast<double>(options.growth_interval));
  positive("max_scale", options.max_scale);
  positive("clip", options.clip.value_or(1));
}

}  // namespace

MixedPrecision::MixedPrecision(
    torch::ScalarType dtype,
    MixedPrecisionOptions options)
    : LossScaling(
          (check(options), scaler_options(dtype, options)),
          options.loss_scale,
          options.clip),
      dtype_(dtype),
      options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      dtype == torch::kHalf || dtype == torch::kBFloat16,
      fmt::format(
          "[MixedPrecision] dtype is {}; expected kHalf or kBFloat16.",
          c10::toString(dtype)));
}

void MixedPrecision::on_batch_begin(Learner& learn) {
  for (torch::Tensor& input : learn.state().batch_data.inputs) {
    if (input.is_floating_point()) input = input.to(dtype_);
  }
}

std::string MixedPrecision::precision_text() const {
  return fmt::format(
      "{} model, fp32 masters",
      dtype_ == torch::kHalf ? "fp16" : "bf16");
}

void MixedPrecision::on_loss_begin(Learner& learn) {
  if (options_.loss_fp32) outputs_to_fp32(learn.state());
}

namespace {

bool computes_in_bfloat16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;  // not known
#endif
}

void convert(
    Learner& learn,
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options) {
  const auto callback = std::make_shared<MixedPrecision>(dtype, options);
  learn.to_fp32();
  set_master_weights(
      learn,
      std::make_shared<MasterWeights>(
          learn.model(),
          dtype,
          options.flat_master));
  learn.state().input_dtype = dtype;
  learn.add(callback);
}

}  // namespace

Learner& Learner::to_fp16() {
  return to_fp16(MixedPrecisionOptions{});
}

Learner& Learner::to_fp16(const MixedPrecisionOptions& options) {
  if (parts_->data.device.is_cpu() && !options.force_fp16) {
    sink().line(fmt::format(
        "to_fp16: on a CPU this trains in bfloat16, because fp16 is far slower "
        "there than fp32; {{.force_fp16 = true}} insists.{}",
        computes_in_bfloat16()
            ? ""
            : " This processor has no bfloat16 instructions: fp32 is faster."));
    convert(*this, torch::kBFloat16, options);
  } else {
    convert(*this, torch::kHalf, options);
  }
  return *this;
}

Learner& Learner::to_bf16() {
  convert(*this, torch::kBFloat16, {});
  return *this;
}

Learner& Learner::to_fp32() {
  TORCH_CHECK(
      !parts_->is_fitting,
      "[Learner] the precision cannot change while fit runs; call it before or "
      "after.");
  if (const auto callback = find<LossScaling>()) remove(*callback);
  if (const auto masters = master_weights(*this)) {
    if (auto* fused = dynamic_cast<AmpAware*>(parts_->optimizer.get())) {
      fused->set_weights({}, {});
    }
    masters->restore();
    set_master_weights(*this, nullptr);
  }
  parts_->state.input_dtype = torch::kFloat;
  return *this;
}

}  // namespace tern
