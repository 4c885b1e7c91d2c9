#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/precision/precision_probe.h"
#include "tern/kernels/check.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

// Half's largest number, and 2^5 times what rounds to more than 0.
constexpr double kHalfLargest = 65504, kHalfTypical = 0x1p-20;

void recommend(PrecisionAudit& audit, bool is_cpu) {
  if (!audit.problems.empty()) {
    audit.reason = "fp32 is not sound itself: " + audit.problems[0];
    return;
  }
  // The fewest modules in fp32; processors compute in bfloat16 alone.
  const auto cost = [&](const TypeAudit& type) {
    return pays(audit, type) ? type.keep_fp32.size() : SIZE_MAX;
  };
  const size_t half = cost(audit.fp16), brain = cost(audit.bf16);
  if (half == SIZE_MAX && brain == SIZE_MAX) {
    audit.precision = audit.amp_is_sound ? Precision::amp : Precision::fp32;
    audit.reason = "too much goes wrong with weights in 16 bits of either type";
    if (audit.amp_is_sound) audit.reason += ", and nothing under autocast";
    return;
  }
  const bool is_half = half < brain || (half == brain && !is_cpu);
  const TypeAudit& type = is_half ? audit.fp16 : audit.bf16;
  audit.precision = is_half ? Precision::fp16 : Precision::bf16;
  audit.options.keep_fp32 = type.keep_fp32;
  audit.options.force_fp16 = is_half;
  const double scale =
      std::clamp(type.loss_scale, 1.0, audit.options.max_scale);
  if (is_half) audit.options.init_scale = scale;
  if (scale != type.loss_scale) audit.options.loss_scale = type.loss_scale;
  audit.reason = "nothing goes wrong";
  if (type.keep_fp32.empty()) return;
  audit.reason +=
      fmt::format(" with {} in fp32", fmt::join(type.keep_fp32, ", "));
}

}  // namespace

void judge_input(PrecisionAudit& audit, const torch::Tensor& input) {
  const torch::Tensor bad = (~input.isfinite()).nonzero();
  if (bad.numel() > 0) {
    audit.problems.push_back(fmt::format(
        "sample {} of the batch has an input that is NaN or infinite",
        bad[0][0].item<int64_t>()));
  } else if ((input.abs() > kHalfLargest).any().item<bool>()) {
    audit.fp16.keep_fp32 = {"input"};
    audit.modules[0].fp16.fault = "overflows";
  }
}

void judge_gradients(PrecisionAudit& audit, double loss, double faintest) {
  double largest = 0;
  for (const ModuleAudit& module : audit.modules) {
    take_worst(largest, module.largest_gradient);
  }
  if (!std::isfinite(largest + loss)) {
    audit.problems.emplace_back("the loss or a gradient is NaN or infinite");
  }
  if (!audit.problems.empty() || largest == 0) return;
  const auto power_of_two = [](double at_most) {
    return std::exp2(std::floor(std::log2(at_most)));
  };
  // By the largest gradient, and by the faintest, which must stay some bits
  // above what is lost.
  TypeAudit& half = audit.fp16;
  half.safe_scale_from = power_of_two(2 * kHalfTypical / faintest);
  half.safe_scale_to = power_of_two(kHalfLargest / largest);
  half.loss_scale = std::min(
      half.safe_scale_to / 4,
      std::max(MixedPrecisionOptions().init_scale, half.safe_scale_from));
}

PrecisionAudit Learner::audit_precision() {
  return audit_precision(PrecisionAuditOptions{});
}

PrecisionAudit Learner::audit_precision(const PrecisionAuditOptions& options) {
  const char* const where = "Learner::audit_precision";
  check_not_fitting(*this, where);
  TERN_CHECK_VALUE(
      !parts_->precision && !parts_->is_parallel && !parts_->communicator,
      "[{}] this Learner computes in {}, or on several devices; expected one "
      "in fp32 on one device. Call it before to_fp16, to_parallel and the "
      "like, or to_fp32() first.",
      where,
      loop::precision_text(*parts_));
  PrecisionAudit audit;
  probe_precision(*this, options.lr, audit);
  recommend(audit, parts_->data.device.is_cpu());
  return audit;
}

}  // namespace tern
