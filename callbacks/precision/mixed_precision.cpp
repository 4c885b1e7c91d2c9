#include "tern/callbacks/precision/mixed_precision.h"

#include <algorithm>

#include <fmt/format.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/precision/loss_scaling.h"
#include "tern/kernels/check.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/fused_optimizer.h"

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
      .loss_fp32 = options.loss_fp32,
      .keep_fp32 = options.keep_fp32};
}

bool computes_in_bfloat16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;  // not known
#endif
}

}  // namespace

MixedPrecision::MixedPrecision(
    torch::ScalarType dtype,
    const MixedPrecisionOptions& options)
    : LossScaling("MixedPrecision", settings_of(dtype, options)),
      has_flat_masters_(options.flat_master),
      has_masters_(options.master_weights),
      converts_inputs_(
          std::ranges::find(options.keep_fp32, "input") ==
          options.keep_fp32.end()) {
  TERN_CHECK_VALUE(
      has_masters_ || dtype == torch::kBFloat16,
      "[MixedPrecision] master_weights is false for fp16, in which most "
      "updates "
      "vanish; expected true, or to_bf16.");
}

void MixedPrecision::on_train_begin(Learner& learn) {
  LossScaling::on_train_begin(learn);
  TERN_CHECK_VALUE(
      has_masters_ || dynamic_cast<AmpAware*>(&learn.optimizer()),
      "[MixedPrecision] without master_weights this optimizer would round "
      "small updates away; expected one of tern::optim, which rounds "
      "stochastically.");
}

void MixedPrecision::on_add(Learner& learn) {
  LossScaling::on_add(learn);
  set_master_weights(
      learn,
      std::make_shared<MasterWeights>(
          learn.model(),
          dtype(),
          has_flat_masters_,
          kept(),
          has_masters_));
  if (converts_inputs_) learn.state().input_dtype = dtype();
}

void MixedPrecision::on_remove(Learner& learn) {
  LearnerParts& l = learn.parts();
  if (auto* fused = dynamic_cast<AmpAware*>(l.optimizer.get())) {
    fused->set_weights({}, {});
  }
  master_weights(learn)->restore();
  set_master_weights(learn, nullptr);
  l.state.input_dtype = torch::kFloat;
}

void MixedPrecision::on_batch_begin(Learner& learn) {
  if (!converts_inputs_) return;
  for (torch::Tensor& input : learn.state().batch_data.inputs) {
    if (input.is_floating_point()) input = input.to(dtype());
  }
}

std::string MixedPrecision::precision_text() const {
  return fmt::format(
      "{} model, {}{}",
      dtype() == torch::kHalf ? "fp16" : "bf16",
      has_masters_ ? "fp32 masters" : "stochastic rounding",
      kept().empty() ? "" : ", some layers in fp32");
}

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
    return to_bf16(options);
  }
  const auto callback = std::make_shared<MixedPrecision>(torch::kHalf, options);
  return to_fp32().add(callback);
}

Learner& Learner::to_bf16() {
  return to_bf16(MixedPrecisionOptions{});
}

Learner& Learner::to_bf16(const MixedPrecisionOptions& options) {
  check_not_fitting(*this, "Learner::to_bf16");
  const auto callback =
      std::make_shared<MixedPrecision>(torch::kBFloat16, options);
  return to_fp32().add(callback);
}

Learner& Learner::to_fp32() {
  check_not_fitting(*this, "Learner::to_fp32");
  if (const auto callback = find<LossScaling>()) remove(*callback);
  return *this;
}

}  // namespace tern
