#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tern/callbacks/precision/precision_probe.h"

namespace tern {

namespace {

constexpr double kBadError = 0.5;

double share(const torch::Tensor& chosen, const torch::Tensor& among) {
  const double all = among.sum().item<double>();
  return all > 0 ? (chosen & among).sum().item<double>() / all : 0;
}

}  // namespace

double norm_of(const torch::Tensor& numbers) {
  return numbers.detach().to(torch::kDouble).norm().item<double>();
}

ModuleAudit::Change change_of(
    const torch::Tensor& own,
    const torch::Tensor& fp32,
    double smallest_normal) {
  const torch::Tensor finite = fp32.isfinite();
  const torch::Tensor bad = ~(finite & own.isfinite());
  const double size = norm_of(fp32.masked_fill(bad, 0));
  const double difference = norm_of((own - fp32).masked_fill(bad, 0));
  return {
      .overflow = share(bad, finite),
      .tiny = share(fp32.abs() < smallest_normal, fp32 != 0),
      .error = size > 0 ? difference / size : 0};
}

void take_worst(double& worst, double other) {
  if (!(other <= worst) && !std::isnan(worst)) worst = other;
}

void take_worst(ModuleAudit::Change& worst, const ModuleAudit::Change& other) {
  take_worst(worst.overflow, other.overflow);
  take_worst(worst.tiny, other.tiny);
  take_worst(worst.error, other.error);
}

void PrecisionProbe::blame(ModuleAudit& module, const std::string& fault) {
  TypeAudit& model = audit_.*type_->in_model;
  model.is_sound = false;
  if (std::ranges::count(model.keep_fp32, module.name) > 0) return;
  model.keep_fp32.push_back(module.name);
  (module.*type_->in_module).fault = fault;
}

void PrecisionProbe::note_gradient(
    size_t module,
    const torch::Tensor& gradient) {
  const auto count = gradient.count_nonzero().item<double>();
  if (count == 0) return;
  ModuleAudit& own = audit_.modules[module];
  take_worst(own.largest_gradient, gradient.abs().max().item<double>());
  faintest_ = std::min(faintest_, norm_of(gradient) / std::sqrt(count));
}

void PrecisionProbe::note(
    const Op& op,
    const torch::Tensor& output,
    Origin& origin) {
  const size_t i = origin.module;
  if (type_) {
    // As it is stored, also for backward; not a change that autograd may see.
    compare(op, output.variable_data(), origin);
  } else {
    note_fp32(op, output.detach(), i);
  }
  if (!output.requires_grad() || (type_ && (!emulates() || origin.is_fp32))) {
    return;
  }
  output.register_hook([this, i](const torch::Tensor& g) {
    if (type_) return rounded(g);
    note_gradient(i, g);
    return g;
  });
}

void PrecisionProbe::note_fp32(
    const Op& op,
    const torch::Tensor& output,
    size_t i) {
  ModuleAudit& module = audit_.modules[i];
  results_[fmt::format("{}/{}", i, op.name)].push_back(output.clone());
  take_worst(module.largest_output, output.abs().max().item<double>());
  const auto problem = fmt::format(
      "{} in {} is not finite in fp32 already",
      op.name,
      module.name);
  if (audit_.problems.empty() && output.isnan().any().item<bool>()) {
    audit_.problems.push_back(
        first_infinite_.empty() ? problem : first_infinite_);
  }
  // A mask of infinities is none, unless the loss is not finite.
  if (first_infinite_.empty() && !op.is_infinite &&
      output.isinf().any().item<bool>()) {
    first_infinite_ = problem;
  }
}

void PrecisionProbe::compare(
    const Op& op,
    torch::Tensor stored,
    Origin& origin) {
  if (!origin.is_fp32) stored.copy_(rounded(stored));
  // Autocast calls conversions that are not there in fp32.
  const auto key = fmt::format("{}/{}", origin.module, op.name);
  const bool is_cast = op.name == "to" || op.name == "_to_copy";
  if (is_cast && type_->is_autocast) return;
  const size_t n = seen_[key]++;
  const Tensors& all = results_[key];
  if (n >= all.size() || all[n].sizes() != stored.sizes()) return;
  ModuleAudit& module = audit_.modules[origin.module];
  const torch::Tensor& right = all[n];
  const ModuleAudit::Change change =
      change_of(stored, right, type_->smallest_normal());
  // Rounding that adds up from layer to layer is noise, and nobody's fault.
  const bool is_sudden = change.error > std::max(kBadError, 8 * origin.error);
  origin.error = change.error;
  auto fault = fmt::format("{} is {:.0f} % wrong", op.name, 100 * change.error);
  if (change.overflow > 0) {
    fault = op.name + " overflows";
    origin.doubt.clear();
  } else if (change.error <= kBadError) {
    origin.doubt.clear();
  } else {
    // What cancels out, such as the mean of what is normalised, or is added to
    // what is far larger, as a block with a layer scale of 1e-6, differs by the
    // rounding of operands: to blame if the next layer, or the output, is
    // spoiled.
    const double ulp = type_->dtype == torch::kHalf ? 0x1p-10 : 0x1p-7;
    const double difference = change.error * norm_of(right);
    if (is_sudden && difference <= 8 * ulp * op.largest_norm) {
      origin.doubt = fault;
      origin.doubted = origin.module;
      return;
    }
    if (!origin.doubt.empty() && !op.has_weights) return;
  }
  take_worst((module.*type_->in_module).output, change);
  if (change.overflow == 0 && !is_sudden && origin.doubt.empty()) return;
  if (origin.doubt.empty()) {
    origin.is_fp32 = true;
    blame(module, fault);
  } else {
    blame(audit_.modules[origin.doubted], origin.doubt);
    origin.doubt.clear();
  }
  // What comes after is judged by itself, and in this module in fp32.
  stored.copy_(right);
  origin.error = 0;
}

}  // namespace tern
