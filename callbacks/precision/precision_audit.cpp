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
  Json rows = Json::array();
  const auto add = [&](const ModuleAudit& module,
                       const char* type,
                       const ModuleAudit::InType& in) {
    Json row = {
        {"name", module.name},
        {"type", type},
        {"largest_output", module.largest_output},
        {"largest_gradient", module.largest_gradient}};
    const std::pair<std::string, const ModuleAudit::Change&> changes[] = {
        {"output", in.output},
        {"gradient", in.gradient},
        {"update", in.update}};
    for (const auto& [what, change] : changes) {
      row[what + "_overflow"] = change.overflow;
      row[what + "_tiny"] = change.tiny;
      row[what + "_error"] = change.error;
    }
    row["update_lost"] = in.update_lost;
    row["fault"] = in.fault;
    rows.push_back(row);
  };
  const bool has_amp = audit.amp.is_sound || !audit.amp.keep_fp32.empty();
  for (const ModuleAudit& module : audit.modules) {
    add(module, "fp16", module.fp16);
    add(module, "bf16", module.bf16);
    if (has_amp) add(module, "amp", module.amp);
  }
  return rows;
}

// The first row is the header.
std::vector<Row> table_of(const PrecisionAudit& audit) {
  std::vector<Row> table(1);
  for (const Json& row : rows_of(audit)) {
    Row& cells = table.emplace_back();
    for (const auto& [key, value] : row.items()) {
      if (table.size() == 2) table[0].push_back(key);
      const bool is_share = !key.starts_with("largest");
      cells.push_back(
          value.is_string() ? value.get<std::string>()
          : is_share        ? fmt::format("{:.3g} %", 100 * value.get<double>())
                            : fmt::format("{:.3g}", value.get<double>()));
    }
  }
  for (std::string& title : table[0]) std::ranges::replace(title, '_', ' ');
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
  const std::vector<Row> table = table_of(*this);
  std::vector<size_t> widths(table[0].size());
  for (const Row& row : table) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const Row& row : table) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string fill(widths[i] - row[i].size(), ' ');
      const bool is_text = i < 2 || i + 1 == row.size();
      text += (is_text ? row[i] + fill : fill + row[i]) + "  ";
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
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
    Curve outputs{.label = "largest output"};
    Curve gradients{.label = "largest gradient"};
    Curve limit{.label = "fp16's largest"};
    for (const ModuleAudit& module : audit.modules) {
      outputs.y.push_back(module.largest_output);
      gradients.y.push_back(module.largest_gradient);
      limit.y.push_back(65504);
      limit.x.push_back(static_cast<double>(limit.x.size()));
    }
    outputs.x = gradients.x = limit.x;
    plot.curves = {outputs, gradients, limit};
    page.plot(plot);
    const std::vector<Row> table = table_of(audit);
    page.table(table[0], {table.begin() + 1, table.end()});
  };
}

}  // namespace tern
