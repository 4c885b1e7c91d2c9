#include "tern/callbacks/diagnose/precision_audit.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/diagnose/precision_probe.h"
#include "tern/callbacks/diagnose/step_time.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"
#include "tern/kernels/cpu_isa.h"
#include "tern/learner/checkpoint/undo.h"
#include "tern/learner/learner.h"
#include "tern/learner/loop.h"
#include "tern/learner/plots/plot.h"

namespace tern {

namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

// The only list of columns: one row per module and measured dtype.
Json rows_of(const PrecisionAudit& audit) {
  std::vector<std::pair<const char*, ModuleAudit::InType ModuleAudit::*>>
      types = {{"fp16", &ModuleAudit::fp16}, {"bf16", &ModuleAudit::bf16}};
  if (audit.amp.is_sound || !audit.amp.keep_fp32.empty()) {
    types.emplace_back("amp", &ModuleAudit::amp);
  }
  Json rows = Json::array();
  for (const ModuleAudit& module : audit.modules) {
    for (const auto& [type, member] : types) {
      const ModuleAudit::InType& in = module.*member;
      Json& row = rows.emplace_back();
      row["name"] = module.name;
      row["type"] = type;
      row["largest_output"] = module.largest_output;
      row["largest_gradient"] = module.largest_gradient;
      const auto add = [&](const std::string& what,
                           const ModuleAudit::Change& change) {
        row[what + "_overflow"] = change.overflow;
        row[what + "_tiny"] = change.tiny;
        row[what + "_error"] = change.error;
      };
      add("output", in.output);
      add("gradient", in.gradient);
      add("update", in.update);
      row["update_lost"] = in.update_lost;
      row["fault"] = in.fault;
    }
  }
  return rows;
}

// The first row is the header.
std::vector<Row> table_of(const PrecisionAudit& audit) {
  std::vector<Row> table(1);
  for (const Json& row : rows_of(audit)) {
    Row& cells = table.emplace_back();
    table[0].clear();
    for (const auto& [key, value] : row.items()) {
      std::ranges::replace(table[0].emplace_back(key), '_', ' ');
      cells.push_back(
          value.is_string() ? value.get<std::string>()
          : key.starts_with("largest")
              ? fmt::format("{:.3g}", value.get<double>())
              : fmt::format("{:.3g}%", 100 * value.get<double>()));
    }
  }
  return table;
}

std::string call_of(const PrecisionAudit& audit) {
  constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "amp"};
  const bool is_amp = audit.precision == Precision::amp;
  const MixedPrecisionOptions& options = audit.options;
  Row given;
  if (audit.precision == Precision::fp16) {
    given.push_back(fmt::format(
        ".{} = {:g}",
        options.loss_scale ? "loss_scale" : "init_scale",
        options.loss_scale.value_or(options.init_scale)));
  }
  if (is_amp && audit.amp.loss_scale != 1) {
    given.push_back(
        fmt::format(".scaler = {{.init_scale = {:g}}}", audit.amp.loss_scale));
  }
  if (!options.keep_fp32.empty()) {
    given.push_back(fmt::format(
        ".keep_fp32 = {{\"{}\"}}",
        fmt::join(options.keep_fp32, "\", \"")));
  }
  const std::string all = fmt::format("{{{}}}", fmt::join(given, ", "));
  const char* const name = kNames[static_cast<size_t>(audit.precision)];
  return fmt::format("to_{}({})", name, given.empty() ? "" : all);
}

Row summary_of(const PrecisionAudit& audit) {
  Row lines;
  for (const std::string& problem : audit.problems) {
    lines.push_back("problem: " + problem + ".");
  }
  const double from = audit.fp16.safe_scale_from, to = audit.fp16.safe_scale_to;
  if (audit.problems.empty()) {
    lines.push_back(fmt::format(
        "fp16: gradients are lost at loss scales below {:g}, and overflow "
        "above {:g}{}.",
        from,
        to,
        from > to ? ": none is safe for all layers" : ""));
  }
  for (const auto* type : {&audit.fp16, &audit.bf16}) {
    if (!type->needs_masters) continue;
    lines.push_back(fmt::format(
        "{0}: updates are lost without master weights; to_{0} keeps them.",
        type == &audit.fp16 ? "fp16" : "bf16"));
  }
  lines.push_back(
      fmt::format("recommended: {}: {}.", call_of(audit), audit.reason));
  return lines;
}

}  // namespace

const TypeAudit* PrecisionAudit::recommended() const {
  const TypeAudit* const all[] = {nullptr, &fp16, &bf16, &amp};
  return all[static_cast<size_t>(precision)];
}

Learner& PrecisionAudit::apply(Learner& learn) const {
  if (precision == Precision::fp16) return learn.to_fp16(options);
  if (precision == Precision::bf16) return learn.to_bf16(options);
  if (precision == Precision::fp32) return learn.to_fp32();
  AmpOptions with{.keep_fp32 = options.keep_fp32};
  if (amp.loss_scale != 1) with.scaler = {.init_scale = amp.loss_scale};
  return learn.to_amp(with);
}

std::string PrecisionAudit::to_string() const {
  std::vector<Row> table = table_of(*this);
  for (size_t i = 0; i + 1 < table[0].size(); ++i) {
    size_t width = 0;
    for (const Row& row : table) width = std::max(width, row[i].size());
    for (Row& row : table) {
      std::string& cell = row[i];  // right-aligns numbers
      cell.insert(i < 2 ? cell.size() : 0, width - cell.size(), ' ');
    }
  }
  std::string text;
  for (const Row& row : table) {
    text += fmt::format("{}\n", fmt::join(row, "  "));
  }
  return text + fmt::format("{}\n", fmt::join(summary_of(*this), "\n"));
}

std::string PrecisionAudit::to_json() const {
  const auto in_model = [](const TypeAudit& type) {
    return Json{
        {"safe_scale_from", type.safe_scale_from},
        {"safe_scale_to", type.safe_scale_to},
        {"loss_scale", type.loss_scale},
        {"needs_masters", type.needs_masters},
        {"keep_fp32", type.keep_fp32},
        {"is_sound", type.is_sound}};
  };
  Json all = {
      {"modules", rows_of(*this)},
      {"fp16", in_model(fp16)},
      {"bf16", in_model(bf16)},
      {"amp", in_model(amp)},
      {"problems", problems},
      {"recommendation", {{"call", call_of(*this)}, {"reason", reason}}}};
  if (fp32_milliseconds > 0) {
    all["step_milliseconds"] = {
        {"fp32", fp32_milliseconds},
        {"sixteen_bit", sixteen_bit_milliseconds}};
  }
  return all.dump(2);
}

ReportSection PrecisionAudit::section() const {
  return [audit = *this](HtmlPage& page) {
    page.heading("Precision");
    for (const std::string& line : summary_of(audit)) page.paragraph(line);
    Plot plot{.title = "Magnitudes by depth", .x_label = "module"};
    plot.log_y = true;
    plot.curves = {
        {.label = "largest output"},
        {.label = "largest gradient"},
        {.label = "fp16's largest"}};
    for (const ModuleAudit& module : audit.modules) {
      plot.curves[0].y.push_back(module.largest_output);
      plot.curves[1].y.push_back(module.largest_gradient);
      plot.curves[2].y.push_back(65504);
      for (Curve& curve : plot.curves) {
        curve.x.push_back(static_cast<double>(curve.x.size()));
      }
    }
    page.plot(plot);
    const std::vector<Row> table = table_of(audit);
    page.table(table[0], {table.begin() + 1, table.end()});
  };
}

namespace {

constexpr int kPasses = 3, kAutocastPasses = 2;  // plus fp32 and a step: 10
// The largest fp16 value, and 2^5 times the smallest that does not round to 0.
constexpr double kHalfLargest = 65504, kHalfTypical = 0x1p-20;
constexpr double kLeast = 1.0 / 3;  // of the norm of a gradient
constexpr double kManyLost = 0.1;   // fraction of a module's updates

constexpr PrecisionType kFp16 = {
    torch::kHalf,
    &ModuleAudit::fp16,
    &PrecisionAudit::fp16};
constexpr PrecisionType kBf16 = {
    torch::kBFloat16,
    &ModuleAudit::bf16,
    &PrecisionAudit::bf16};

// If most layers must stay in fp32, 16 bits have no benefit.
bool pays(const PrecisionAudit& audit, const TypeAudit& type) {
  return type.is_sound && 2 * type.keep_fp32.size() <= audit.modules.size();
}

class Audit final : public Callback {
 public:
  explicit Audit(PrecisionAudit& audit) : audit_(audit), probe_(audit) {}

  void on_batch_begin(Learner& learn) override {
    LearnerParts& l = parts_of(learn);
    before_ = by_module(l, false);
    audit_.modules = {{.name = "input"}};  // what precedes any weights
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
    ByModule after = by_module(parts_of(learn), false);
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

  // Chooses loss scales from the largest gradient and from the faintest one,
  // which must stay a few bits above the underflow threshold.
  void judge_gradients() {
    double largest = 0;
    for (const ModuleAudit& module : audit_.modules) {
      take_worst(largest, module.largest_gradient);
      if (std::isfinite(largest) || !audit_.problems.empty()) continue;
      audit_.problems.push_back(fmt::format(
          "a gradient in {} is not finite, even in fp32",
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
      size_t kept = SIZE_MAX;  // modules in fp32; must grow each time
      const int passes = type.is_autocast ? kAutocastPasses : kPasses;
      for (int i = 0; i < passes && !model.is_sound; ++i) {
        if (std::exchange(kept, model.keep_fp32.size()) == kept) break;
        model.is_sound = true;  // until a module is blamed
        compare_gradients(type, probe_.pass(l, &type));
      }
    }
  }

  // A gradient that is lost or overflows corrupts the gradients of all earlier
  // modules. Its module is blamed unless the forward pass is to blame.
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
      // Rounding changes the direction slightly; a lost gradient has almost no
      // norm.
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
    audit.reason = "training fails even in fp32: " + audit.problems[0];
    return;
  }
  // Prefers the fewest modules in fp32. CPUs are slow in fp16.
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
    audit.reason = "too many layers fail in 16 bits";
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
  audit.reason = "no problems found";
  if (type.keep_fp32.empty()) return;
  audit.reason +=
      fmt::format(" with {} in fp32", fmt::join(type.keep_fp32, ", "));
}

void recommend_fp32(PrecisionAudit& audit, std::string reason) {
  audit.precision = Precision::fp32;
  audit.options = {};
  audit.reason = std::move(reason);
}

// On a CPU 16 bits are worth their rounding only if they are faster.
void prefer_faster(
    Learner& learn,
    const LearningRates& lr,
    PrecisionAudit& audit) {
  if (!multiplies_bfloat16()) {
    recommend_fp32(
        audit,
        "this processor has no bfloat16 instructions, so fp32 is faster");
    return;
  }
  if (learn.data().train->dataset().can_end_early()) return;
  const std::optional<double> fp32 = step_milliseconds(learn, lr);
  std::optional<double> in_16_bits;
  try {
    in_16_bits = step_milliseconds(learn, lr, [&] { audit.apply(learn); });
  } catch (const std::exception& error) {
    // The audit computed in fp32 and rounded. Not all of LibTorch's operators
    // support 16 bits.
    check_not_stopped(learn);
    recommend_fp32(
        audit,
        fmt::format(
            "training with {} fails: {}",
            call_of(audit),
            message_of(error)));
    return;
  }
  if (!fp32 || !in_16_bits) return;  // a callback ends each fit at once
  audit.fp32_milliseconds = *fp32;
  audit.sixteen_bit_milliseconds = *in_16_bits;
  const std::string times = fmt::format(
      "a training step takes {:.3g} ms in fp32 and {:.3g} ms with {}",
      *fp32,
      *in_16_bits,
      call_of(audit));
  if (is_clearly_shorter(*in_16_bits, *fp32)) {
    audit.reason += "; " + times;
  } else {
    recommend_fp32(audit, times);
  }
}

}  // namespace

PrecisionAudit Learner::audit_precision() {
  return audit_precision(PrecisionAuditOptions{});
}

PrecisionAudit Learner::audit_precision(const PrecisionAuditOptions& options) {
  const char* const where = "Learner::audit_precision";
  check_not_fitting(*this, where);
  TERN_CHECK_VALUE(
      !parts_->precision && !parts_->step.is_parallel &&
          !parts_->ranks.communicator,
      "[{}] this Learner computes in {}, or on several devices; expected fp32 "
      "on one device. Call it before to_fp16, to_parallel and the like, or "
      "to_fp32() first.",
      where,
      loop::precision_text(*parts_));
  PrecisionAudit audit;
  const auto callback = std::make_shared<Audit>(audit);
  undo(*this, [&] {
    fit_batches(*this, 1, options.lr, {callback});
    check_not_stopped(*this);
  });
  const bool is_cpu = parts_->data.device.is_cpu();
  recommend(audit, is_cpu);
  if (is_cpu && options.measure_speed && audit.precision != Precision::fp32) {
    prefer_faster(*this, options.lr, audit);
  }
  return audit;
}

}  // namespace tern
