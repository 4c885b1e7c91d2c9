#include <algorithm>
#include <cmath>
#include <memory>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/precision_probe.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

constexpr int kPasses = 3, kAutocastPasses = 2;  // with fp32, a step: 10
// Half's largest number, and 2^5 times what rounds to more than 0.
constexpr double kHalfLargest = 65504, kHalfTypical = 0x1p-20;
constexpr double kLeast = 1.0 / 3;  // of a gradient's size
constexpr double kManyLost = 0.1;   // of the updates of a module

constexpr PrecisionType kFp16 = {
    torch::kHalf,
    &ModuleAudit::fp16,
    &PrecisionAudit::fp16};
constexpr PrecisionType kBf16 = {
    torch::kBFloat16,
    &ModuleAudit::bf16,
    &PrecisionAudit::bf16};

// Where most layers would stay fp32 nothing is won.
bool pays(const PrecisionAudit& audit, const TypeAudit& type) {
  return type.is_sound && 2 * type.keep_fp32.size() <= audit.modules.size();
}

class Audit final : public Callback {
 public:
  explicit Audit(PrecisionAudit& audit) : audit_(audit), probe_(audit) {}

  void on_batch_begin(Learner& learn) override {
    LearnerParts& l = learn.parts();
    before_ = by_module(l, false);
    audit_.modules = {{.name = "input"}};  // what comes before any weights
    for (const torch::Tensor& input : l.state.batch_data.inputs) {
      if (input.is_floating_point()) judge_input(input);
    }
    gradients_ = probe_.pass(l, nullptr);
    judge_gradients();
    if (audit_.problems.empty()) try_types(l);
    const ModuleAudit& input = audit_.modules[0];
    if (input.largest_output == 0 && input.fp16.fault.empty()) {
      audit_.modules.erase(audit_.modules.begin());
    }
  }

  void on_step_end(Learner& learn) override {
    ByModule after = by_module(learn.parts(), false);
    for (ModuleAudit& module : audit_.modules) {
      const torch::Tensor now = after[module.name], old = before_[module.name];
      if (!now.defined()) continue;
      const torch::Tensor update = now - old;
      const double moved = update.count_nonzero().item<double>();
      for (const PrecisionType& type : {kFp16, kBf16}) {
        ModuleAudit::InType& in = module.*type.in_module;
        const torch::Tensor own =
            now.to(type.dtype).to(torch::kDouble) - old.to(type.dtype);
        in.update = change_of(own, update, type.smallest_normal());
        const auto lost = ((own == 0) & (update != 0)).sum().item<double>();
        in.update_lost = moved > 0 ? lost / moved : 0;
        (audit_.*type.in_model).needs_masters |= in.update_lost > kManyLost;
      }
    }
  }

  int order() const override { return callback_order::kLast; }

 private:
  void judge_input(const torch::Tensor& input) {
    const torch::Tensor bad = (~input.isfinite()).nonzero();
    if (bad.numel() > 0) {
      audit_.problems.push_back(fmt::format(
          "sample {} of the batch has an input that is NaN or infinite",
          bad[0][0].item<int64_t>()));
    } else if ((input.abs() > kHalfLargest).any().item<bool>()) {
      audit_.fp16.keep_fp32 = {"input"};
      audit_.modules[0].fp16.fault = "overflows";
    }
  }

  // Chooses loss scales by the largest gradient, and by the faintest, which
  // must stay some bits above what is lost.
  void judge_gradients() {
    double largest = 0;
    for (const ModuleAudit& module : audit_.modules) {
      take_worst(largest, module.largest_gradient);
      if (std::isfinite(largest) || !audit_.problems.empty()) continue;
      audit_.problems.push_back(fmt::format(
          "a gradient in {} is not finite in fp32 already",
          module.name));
    }
    if (!audit_.problems.empty() || largest == 0) return;
    const auto power_of_two = [](double at_most) {
      return std::exp2(std::floor(std::log2(at_most)));
    };
    TypeAudit& half = audit_.fp16;
    half.safe_scale_from =
        power_of_two(2 * kHalfTypical / probe_.faintest_gradient());
    half.safe_scale_to = power_of_two(kHalfLargest / largest);
    half.loss_scale = std::min(
        half.safe_scale_to / 4,
        std::max(MixedPrecisionOptions().init_scale, half.safe_scale_from));
  }

  void try_types(LearnerParts& l) {
    const bool is_cuda = l.data.device.is_cuda();
    if (is_cuda) audit_.amp.loss_scale = audit_.fp16.loss_scale;
    const PrecisionType amp = {
        is_cuda ? torch::kHalf : torch::kBFloat16,
        &ModuleAudit::amp,
        &PrecisionAudit::amp,
        true};
    for (const PrecisionType& type : {kFp16, kBf16, amp}) {
      const bool is_found =
          pays(audit_, audit_.bf16) || (is_cuda && pays(audit_, audit_.fp16));
      if (type.is_autocast && is_found) return;
      TypeAudit& model = audit_.*type.in_model;
      size_t kept = SIZE_MAX;  // more in fp32 than before
      const int passes = type.is_autocast ? kAutocastPasses : kPasses;
      for (int i = 0; i < passes && !model.is_sound; ++i) {
        if (std::exchange(kept, model.keep_fp32.size()) == kept) break;
        model.is_sound = true;  // unless a module is to blame
        compare_gradients(type, probe_.pass(l, &type));
      }
    }
  }

  // One that is lost or overflows spoils those of all modules before it, and is
  // to blame if the forward pass is not.
  void compare_gradients(const PrecisionType& type, const ByModule& all) {
    const TypeAudit& model = audit_.*type.in_model;
    for (ModuleAudit& module : std::views::reverse(audit_.modules)) {
      const auto right = gradients_.find(module.name);
      const auto seen = all.find(module.name);
      if (right == gradients_.end() || seen == all.end()) continue;
      const double size = right->second.norm().item<double>();
      if (size == 0) continue;
      const torch::Tensor own = seen->second / model.loss_scale;
      const double normal = type.smallest_normal() / model.loss_scale;
      take_worst(
          (module.*type.in_module).gradient,
          change_of(own, right->second, normal));
      // Rounding turns a gradient a little; what is lost has no size.
      const double kept = own.norm().item<double>() / size;
      if ((kept > kLeast && kept < 1 / kLeast) || !model.is_sound) continue;
      const bool is_lost = kept <= kLeast;
      probe_.blame(
          module,
          is_lost ? "its gradient is lost" : "its gradient overflows");
    }
  }

  PrecisionAudit& audit_;
  PrecisionProbe probe_;
  ByModule before_, gradients_;  // weights, and their gradients in fp32
};

void recommend(PrecisionAudit& audit, bool is_cpu) {
  if (!audit.problems.empty()) {
    audit.reason = "fp32 is not sound itself: " + audit.problems[0];
    return;
  }
  // The fewest modules in fp32; processors are slow in half.
  size_t fewest = SIZE_MAX;
  const auto consider = [&](const TypeAudit& type, Precision precision) {
    if (!pays(audit, type) || type.keep_fp32.size() >= fewest) return;
    fewest = type.keep_fp32.size();
    audit.precision = precision;
  };
  if (!is_cpu) consider(audit.fp16, Precision::fp16);
  consider(audit.bf16, Precision::bf16);
  if (fewest == SIZE_MAX) consider(audit.amp, Precision::amp);
  if (fewest == SIZE_MAX) {
    audit.reason = "too much goes wrong in 16 bits";
    return;
  }
  const TypeAudit& type = *audit.recommended();
  MixedPrecisionOptions& options = audit.options;
  options.keep_fp32 = type.keep_fp32;
  if (audit.precision == Precision::fp16) {
    options.init_scale = std::clamp(type.loss_scale, 1.0, options.max_scale);
    if (options.init_scale != type.loss_scale) {
      options.loss_scale = type.loss_scale;
    }
  }
  audit.reason = "nothing goes wrong";
  if (type.keep_fp32.empty()) return;
  audit.reason +=
      fmt::format(" with {} in fp32", fmt::join(type.keep_fp32, ", "));
}

}  // namespace

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
  const auto callback = std::make_shared<Audit>(audit);
  undo(*this, [&] {
    fit_batches(*this, 1, options.lr, {callback});
    check_not_stopped(*this);
  });
  recommend(audit, parts_->data.device.is_cpu());
  return audit;
}

}  // namespace tern
