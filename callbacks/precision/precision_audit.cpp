#include "tern/callbacks/precision/precision_audit.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/learner/learner.h"
#include "tern/learner/report/plot.h"

namespace tern {

namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

// The one list of columns: for each module a row in each type that was tried.
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
              : fmt::format("{:.3g} %", 100 * value.get<double>()));
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
        "{0}: master weights are needed, or updates are lost; to_{0} has them.",
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
      std::string& cell = row[i];  // numbers to the right
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
  const Json all = {
      {"modules", rows_of(*this)},
      {"fp16", in_model(fp16)},
      {"bf16", in_model(bf16)},
      {"amp", in_model(amp)},
      {"problems", problems},
      {"recommendation", {{"call", call_of(*this)}, {"reason", reason}}}};
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

}  // namespace tern
