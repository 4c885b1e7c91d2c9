#pragma once

#include <cmath>

#include <torch/types.h>

#include "tern/callbacks/precision/precision_audit.h"

namespace tern {

/// Measures what `Learner::audit_precision` recommends by; undoes it.
void probe_precision(
    Learner& learn,
    const LearningRates& lr,
    PrecisionAudit& audit);

/// Notes a sample that is not finite, or that half cannot hold the input.
void judge_input(PrecisionAudit& audit, const torch::Tensor& input);
/// Chooses loss scales, or notes that something is not finite in fp32.
/// \param faintest  The least root mean square of a gradient.
void judge_gradients(PrecisionAudit& audit, double loss, double faintest);

/// Where most layers would stay fp32 nothing is won.
inline bool pays(const PrecisionAudit& audit, const TypeAudit& type) {
  return type.is_sound && 2 * type.keep_fp32.size() <= audit.modules.size();
}

/// A type of 16 bits, and where an audit says what it makes of a model.
struct SixteenBits {
  torch::ScalarType dtype;
  double smallest_normal;
  ModuleAudit::InType ModuleAudit::*in_module;
  TypeAudit PrecisionAudit::*in_model;
};
inline constexpr SixteenBits kSixteenBits[] = {
    {torch::kHalf, 0x1p-14, &ModuleAudit::fp16, &PrecisionAudit::fp16},
    {torch::kBFloat16, 0x1p-126, &ModuleAudit::bf16, &PrecisionAudit::bf16}};

inline double norm_of(const torch::Tensor& numbers) {
  return numbers.to(torch::kDouble).norm().item<double>();
}

/// Of the numbers that `among` selects, how many `chosen` does; 0..1.
inline double share(const torch::Tensor& chosen, const torch::Tensor& among) {
  const double all = among.sum().item<double>();
  return all > 0 ? (chosen & among).sum().item<double>() / all : 0;
}

/// NaN is worst.
inline void take_worst(double& worst, double other) {
  if (!(other <= worst) && !std::isnan(worst)) worst = other;
}

/// Returns what has become of numbers, and notes the worst.
inline ModuleAudit::Change note_change(
    ModuleAudit::Change& worst,
    const torch::Tensor& own,
    const torch::Tensor& fp32,
    double smallest_normal) {
  const torch::Tensor finite = fp32.isfinite();
  const torch::Tensor bad = ~(finite & own.isfinite());
  const double size = norm_of(fp32.masked_fill(bad, 0));
  const double difference = norm_of((own - fp32).masked_fill(bad, 0));
  const ModuleAudit::Change change = {
      .overflow = share(bad, finite),
      .tiny = share(fp32.abs() < smallest_normal, fp32 != 0),
      .error = size > 0 ? difference / size : 0};
  take_worst(worst.overflow, change.overflow);
  take_worst(worst.tiny, change.tiny);
  take_worst(worst.error, change.error);
  return change;
}

}  // namespace tern
