#include "tern/callbacks/precision/mixed_precision.h"

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/precision/loss_scaling.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/fused_optimizer.h"
#include "tern/learner/precision/master_weights.h"

namespace tern {

namespace {

LossScaling::Settings settings_of(
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options) {
  const char* const where = "MixedPrecision";
  check_positive(where, "loss_scale", options.loss_scale.value_or(1));
  check_positive(where, "init_scale", options.init_scale);
  check_positive(where, "growth_interval", options.growth_interval);
  check_positive(where, "max_scale", options.max_scale);
  GradScalerOptions scaler;
  // The scale lives where the loss is; kCPU skips the check for a GPU.
  scaler.device = torch::kCPU;
  scaler.enabled = dtype == torch::kHalf;
  scaler.init_scale = options.loss_scale.value_or(options.init_scale);
  scaler.growth_interval = options.growth_interval;
  scaler.min_scale = options.loss_scale ? 0 : 1;
  scaler.max_scale = options.max_scale;
  return {
      .dtype = dtype,
      .scaler = scaler,
      .fixed_scale = options.loss_scale,
      .clip = options.clip,
      .loss_fp32 = options.loss_fp32};
}

// Converts floating inputs too; LossScaling does the rest.
class MixedPrecision final : public LossScaling {
 public:
  MixedPrecision(torch::ScalarType dtype, const MixedPrecisionOptions& options)
      : LossScaling("MixedPrecision", settings_of(dtype, options)) {}

  void on_batch_begin(Learner& learn) override {
    for (torch::Tensor& input : learn.state().batch_data.inputs) {
      if (input.is_floating_point()) input = input.to(dtype());
    }
  }
  std::string precision_text() const override {
    return fmt::format(
        "{} model, fp32 masters",
        dtype() == torch::kHalf ? "fp16" : "bf16");
  }
};

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
  check_not_fitting(*this, "Learner::to_fp16");
  if (parts_->data.device.is_cpu() && !options.force_fp16) {
    parts_->options.sink->line(fmt::format(
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
  check_not_fitting(*this, "Learner::to_bf16");
  convert(*this, torch::kBFloat16, {});
  return *this;
}

Learner& Learner::to_fp32() {
  check_not_fitting(*this, "Learner::to_fp32");
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
