#include "tern/callbacks/precision/precision_audit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <ATen/Context.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/loop.h"
#include "tern/learner/precision/precision_probe.h"

namespace tern {

namespace {

// At most so many passes for each type: with one in fp32, one under autocast
// and one step they are ten.
constexpr int64_t kHalfRounds = 4, kBFloat16Rounds = 3;
constexpr double kLeast = 1.0 / 3;  // of a gradient's size
constexpr double kManyLost = 0.1;

struct Limits {
  torch::ScalarType dtype;
  int64_t rounds;
  double largest;           // finite
  int64_t smallest_normal;  // binary exponents
  int64_t smallest;         // what rounds to more than 0
};
constexpr Limits kHalf = {torch::kHalf, kHalfRounds, 65504, -14, -25};
constexpr Limits kBFloat16 =
    {torch::kBFloat16, kBFloat16Rounds, 3.38e38, -126, -134};

// Where most layers would stay fp32 nothing is won.
bool pays(const TypeAudit& type, const std::vector<ModuleAudit>& modules) {
  return type.is_sound && 2 * type.keep_fp32.size() <= modules.size();
}

std::string module_name(const PrecisionProbe& probe, int64_t module) {
  return module < 0 ? "input" : probe.modules()[module];
}

double power_of_two_below(double number) {
  return std::exp2(std::floor(std::log2(number)));
}

// Gradients of the weights, in fp32 and without the loss scale, by module.
using Gradients = std::map<std::string, Tensors>;

class Audit final : public Callback {
 public:
  void on_batch_begin(Learner& learn) override {
    LearnerParts& l = learn.parts();
    if (!l.state.training || !result.modules.empty()) return;
    random_ = generator(l).get_state();
    inputs_ = l.state.batch_data.inputs;
    PrecisionProbe plain(l.model, inputs_, {}, nullptr);
    const Gradients gradients = backward(l, plain, 1);
    note_plain(l, plain, gradients);
    if (result.problems.empty()) {
      result.fp16 = try_type(l, plain, gradients, kHalf);
      result.bf16 = try_type(l, plain, gradients, kBFloat16);
      if (!pays(result.fp16, result.modules) &&
          !pays(result.bf16, result.modules)) {
        result.amp_is_sound = try_autocast(l, plain, gradients);
      }
    }
    set_random(l);
    l.state.outputs.clear();
  }

  void on_step(Learner& learn) override {
    if (!before_.empty()) return;
    for (const ModelTensor& p : learn.model().parameters()) {
      before_.push_back(p.tensor.detach().clone());
    }
  }

  void on_step_end(Learner& learn) override {
    const torch::NoGradGuard no_grad;
    size_t i = 0;
    std::map<std::string, std::array<double, 3>> lost;  // fp16, bf16, of
    for (const ModelTensor& p : learn.model().parameters()) {
      const torch::Tensor& old = before_[i++];
      const torch::Tensor moved = p.tensor.detach() != old;
      auto& counts = lost[owner_of(p.name)];
      counts[2] += moved.sum().item<double>();
      size_t type = 0;
      for (const auto dtype : {torch::kHalf, torch::kBFloat16}) {
        counts[type++] +=
            (moved & (p.tensor.detach().to(dtype) == old.to(dtype)))
                .sum()
                .item<double>();
      }
    }
    for (ModuleAudit& module : result.modules) {
      const auto& counts = lost[module.name];
      if (counts[2] == 0) continue;
      module.fp16.update_lost = counts[0] / counts[2];
      module.bf16.update_lost = counts[1] / counts[2];
      result.fp16.needs_masters |= module.fp16.update_lost > kManyLost;
      result.bf16.needs_masters |= module.bf16.update_lost > kManyLost;
    }
  }

  int order() const override { return callback_order::kLast; }

  PrecisionAudit result;

 private:
  static std::string owner_of(const std::string& parameter) {
    const size_t dot = parameter.rfind('.');
    return dot == std::string::npos ? parameter : parameter.substr(0, dot);
  }

  static at::Generator generator(const LearnerParts& l) {
    return at::globalContext().defaultGenerator(l.data.device);
  }
  void set_random(LearnerParts& l) { generator(l).set_state(random_); }

  Gradients backward(LearnerParts& l, PrecisionProbe& probe, double scale) {
    set_random(l);
    loop::zero_grad(l);
    l.state.batch_data.inputs = inputs_;
    l.state.outputs = probe.end(loop::run_model(l, inputs_));
    const torch::Tensor loss = loop::compute_loss(l);
    l.state.loss = loss.detach();
    (loss * scale).backward();
    Gradients gradients;
    for (const ModelTensor& p : l.model.parameters()) {
      if (!p.tensor.grad().defined()) continue;
      gradients[owner_of(p.name)].push_back(
          p.tensor.grad().detach().to(torch::kDouble) / scale);
    }
    loop::zero_grad(l);
    return gradients;
  }

  ModuleAudit& module(const std::string& name) {
    const auto at = std::ranges::find(result.modules, name, &ModuleAudit::name);
    if (at != result.modules.end()) return *at;
    return result.modules.emplace_back(ModuleAudit{.name = name});
  }

  void note_plain(
      LearnerParts& l,
      const PrecisionProbe& plain,
      const Gradients& gradients) {
    for (const torch::Tensor& input : inputs_) {
      if (!input.is_floating_point()) continue;
      const torch::Tensor bad = ~input.flatten(1).isfinite().all(1);
      if (!bad.any().item<bool>()) continue;
      result.problems.push_back(fmt::format(
          "sample {} of the batch has an input that is NaN or infinite",
          bad.nonzero()[0].item<int64_t>()));
    }
    for (const ProbedOp& op : plain.ops()) {
      ModuleAudit& own = module(module_name(plain, op.module));
      const Magnitudes output(op.output);
      own.largest_output = std::max(own.largest_output, output.largest);
      own.largest_gradient =
          std::max(own.largest_gradient, op.gradient.largest);
      const auto worst = [](double& share, double other) {
        share = std::max(share, other);
      };
      worst(own.fp16.output_tiny, output.share_below(kHalf.smallest_normal));
      worst(
          own.bf16.output_tiny,
          output.share_below(kBFloat16.smallest_normal));
      if (result.problems.empty() && !op.output.isfinite().all().item<bool>()) {
        result.problems.push_back(fmt::format(
            "{} in {} is not finite in fp32 already",
            op.name,
            own.name));
      }
    }
    for (const auto& [name, all] : gradients) {
      for (const torch::Tensor& gradient : all) {
        const Magnitudes size(gradient);
        ModuleAudit& own = module(name);
        own.largest_gradient = std::max(own.largest_gradient, size.largest);
        magnitudes_[name].push_back(size);
        if (result.problems.empty() &&
            !gradient.isfinite().all().item<bool>()) {
          result.problems.push_back(fmt::format(
              "the gradient of {} is not finite in fp32 already",
              name));
        }
      }
    }
    for (const ProbedOp& op : plain.ops()) {
      if (op.gradient.largest == 0) continue;
      magnitudes_[module_name(plain, op.module)].push_back(op.gradient);
    }
    if (!l.state.loss.isfinite().all().item<bool>() &&
        result.problems.empty()) {
      result.problems.emplace_back("the loss is not finite in fp32 already");
    }
  }

  // The range of loss scales, from the largest gradient, and from the smallest
  // typical one, which must stay some bits above what is lost.
  void choose_scale(TypeAudit& type, const Limits& limits) const {
    double largest = 0, from = 0;
    for (const auto& [name, all] : magnitudes_) {
      for (const Magnitudes& gradient : all) {
        if (gradient.largest == 0) continue;
        largest = std::max(largest, gradient.largest);
        from = std::max(
            from,
            std::exp2(limits.smallest + 5) / gradient.root_mean_square);
      }
    }
    if (largest == 0 || limits.dtype != torch::kHalf) return;
    type.safe_scale_from = power_of_two_below(from) * 2;
    type.safe_scale_to = power_of_two_below(limits.largest / largest);
    const double most = type.safe_scale_to / 4;
    type.loss_scale = std::min(
        most,
        std::max(MixedPrecisionOptions().init_scale, type.safe_scale_from));
  }

  TypeAudit try_type(
      LearnerParts& l,
      const PrecisionProbe& plain,
      const Gradients& gradients,
      const Limits& limits) {
    TypeAudit type;
    choose_scale(type, limits);
    const bool is_half = limits.dtype == torch::kHalf;
    const int64_t scale_bits = std::ilogb(type.loss_scale);
    for (const auto& [name, all] : magnitudes_) {
      ModuleAudit& own = module(name);
      double& tiny = (is_half ? own.fp16 : own.bf16).gradient_tiny;
      for (const Magnitudes& gradient : all) {
        tiny = std::max(
            tiny,
            gradient.share_below(limits.smallest_normal - scale_bits));
      }
    }
    std::set<std::string> kept;
    for (int64_t round = 0; round < limits.rounds; ++round) {
      std::vector<std::string> names(kept.begin(), kept.end());
      PrecisionProbe probe(
          l.model,
          inputs_,
          PrecisionProbe::Rounding{
              .dtype = limits.dtype,
              .kept = kept_parameters(l.model, names, "audit_precision"),
              .keeps_inputs = kept.contains("input")},
          &plain);
      const Gradients own = backward(l, probe, type.loss_scale);
      if (round == 0) note_errors(plain, probe, own, gradients, is_half);
      const size_t before = kept.size();
      const Faults faults = find_faults(plain, probe, own, gradients);
      for (const auto& [name, fault] : faults) {
        if (!kept.insert(name).second) continue;
        in_type(name, is_half).fault = fault;
      }
      type.is_sound = faults.empty();
      if (type.is_sound || kept.size() == before) break;
    }
    type.keep_fp32.assign(kept.begin(), kept.end());
    return type;
  }

  bool try_autocast(
      LearnerParts& l,
      const PrecisionProbe& plain,
      const Gradients& gradients) {
    const bool is_half = l.data.device.is_cuda();
    PrecisionProbe probe(
        l.model,
        inputs_,
        PrecisionProbe::Rounding{
            .dtype = (is_half ? kHalf : kBFloat16).dtype,
            .autocast = l.data.device},
        &plain);
    const double scale = is_half ? result.fp16.loss_scale : 1;
    const Gradients own = backward(l, probe, scale);
    return find_faults(plain, probe, own, gradients).empty();
  }

  ModuleAudit::InType& in_type(const std::string& name, bool is_half) {
    ModuleAudit& found = module(name);
    return is_half ? found.fp16 : found.bf16;
  }

  void note_errors(
      const PrecisionProbe& plain,
      const PrecisionProbe& probe,
      const Gradients& own,
      const Gradients& gradients,
      bool is_half) {
    for (const ProbedOp& op : probe.ops()) {
      auto& figures = in_type(module_name(plain, op.module), is_half);
      figures.output_overflow = std::max(figures.output_overflow, op.overflow);
      figures.output_error = std::max(figures.output_error, op.error);
    }
    for (const auto& [name, right] : gradients) {
      const Sizes sizes = compare(own, name, right);
      if (sizes.right > 0) {
        in_type(name, is_half).gradient_error =
            std::sqrt(sizes.difference / sizes.right);
      }
    }
  }

  // Squares of norms.
  struct Sizes {
    double difference = 0, own = 0, right = 0;
  };
  static Sizes
  compare(const Gradients& own, const std::string& name, const Tensors& right) {
    Sizes sizes;
    const auto seen = own.find(name);
    if (seen == own.end()) return sizes;
    for (size_t i = 0; i < right.size(); ++i) {
      const torch::Tensor &a = seen->second[i], &b = right[i];
      sizes.difference += (a - b).square().sum().item<double>();
      sizes.own += a.square().sum().item<double>();
      sizes.right += b.square().sum().item<double>();
    }
    return sizes;
  }

  // The modules in which something goes wrong first, and what.
  using Faults = std::map<std::string, std::string>;
  static Faults find_faults(
      const PrecisionProbe& plain,
      const PrecisionProbe& probe,
      const Gradients& own,
      const Gradients& gradients) {
    Faults faults;
    if (probe.inputs_overflow()) faults["input"] = "overflows";
    for (const ProbedOp& op : probe.ops()) {
      if (!op.is_first_bad) continue;
      faults.emplace(
          module_name(plain, op.blamed),
          op.overflow > 0
              ? op.name + " overflows"
              : fmt::format("{} is {:.0f} % wrong", op.name, 100 * op.error));
    }
    if (!faults.empty()) return faults;
    // A bad gradient spoils those of all modules before it.
    const auto& names = plain.modules();
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      const auto right = gradients.find(*name);
      if (right == gradients.end()) continue;
      const Sizes sizes = compare(own, *name, right->second);
      if (sizes.right == 0) continue;
      // Rounding turns a gradient a little; what is lost has no size.
      const double share = std::sqrt(sizes.own / sizes.right);
      if (share > kLeast && share < 1 / kLeast) continue;
      return {
          {*name,
           share <= kLeast ? "its gradient is lost"
                           : "its gradient overflows"}};
    }
    return {};
  }

  torch::Tensor random_;
  Tensors inputs_, before_;
  std::map<std::string, std::vector<Magnitudes>> magnitudes_;
};

void recommend(PrecisionAudit& audit, bool is_cpu) {
  if (!audit.problems.empty()) {
    audit.reason = "fp32 is not sound itself: " + audit.problems[0];
    return;
  }
  const auto price = [&](const TypeAudit& type) {
    return pays(type, audit.modules) ? type.keep_fp32.size()
                                     : audit.modules.size() + 1;
  };
  const size_t half = price(audit.fp16), brain = price(audit.bf16);
  if (std::min(half, brain) > audit.modules.size()) {
    audit.reason = "too much goes wrong with weights in 16 bits of either type";
    if (audit.amp_is_sound) {
      audit.precision = Precision::amp;
      audit.reason += ", and nothing under autocast";
    }
    return;
  }
  // Processors compute in bfloat16 alone.
  const bool takes_half = half < brain || (half == brain && !is_cpu);
  const TypeAudit& type = takes_half ? audit.fp16 : audit.bf16;
  audit.precision = takes_half ? Precision::fp16 : Precision::bf16;
  audit.options.keep_fp32 = type.keep_fp32;
  if (takes_half) {
    if (type.loss_scale >= 1 && type.loss_scale <= audit.options.max_scale) {
      audit.options.init_scale = type.loss_scale;
    } else {
      audit.options.loss_scale = type.loss_scale;
    }
    audit.options.force_fp16 = true;
  }
  audit.reason = type.keep_fp32.empty()
                     ? "nothing goes wrong"
                     : fmt::format(
                           "nothing goes wrong with {} in fp32",
                           fmt::join(type.keep_fp32, ", "));
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
      "in "
      "fp32 on one device. Call it before to_fp16, to_parallel and the like, "
      "or "
      "to_fp32() first.",
      where,
      loop::precision_text(*parts_));
  const auto audit = std::make_shared<Audit>();
  undo(*this, [&] { fit_batches(*this, 1, options.lr, {audit}); });
  recommend(audit->result, parts_->data.device.is_cpu());
  return std::move(audit->result);
}

}  // namespace tern
