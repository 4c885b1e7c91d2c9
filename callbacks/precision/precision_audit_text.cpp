// What an audit says, as a table, a section of a report, and JSON.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/callbacks/precision/precision_audit.h"
#include "tern/learner/learner.h"
#include "tern/learner/report/plot.h"

namespace tern {

namespace {

std::string call_of(const PrecisionAudit& audit) {
  if (audit.precision == Precision::fp32) return "to_fp32()";
  if (audit.precision == Precision::amp) return "to_amp()";
  std::vector<std::string> options;
  if (audit.precision == Precision::fp16) {
    const auto& scale = audit.options.loss_scale;
    options.push_back(
        scale ? fmt::format(".loss_scale = {:g}", *scale)
              : fmt::format(".init_scale = {:g}", audit.options.init_scale));
  }
  if (!audit.options.keep_fp32.empty()) {
    options.push_back(fmt::format(
        ".keep_fp32 = {{\"{}\"}}",
        fmt::join(audit.options.keep_fp32, "\", \"")));
  }
  return fmt::format(
      "{}({})",
      audit.precision == Precision::fp16 ? "to_fp16" : "to_bf16",
      options.empty() ? "" : fmt::format("{{{}}}", fmt::join(options, ", ")));
}

const std::vector<std::string> kAuditColumns = {
    "module",
    "largest output",
    "largest gradient",
    "type",
    "overflow",
    "tiny outputs",
    "tiny gradients",
    "lost updates",
    "output error",
    "gradient error",
    "fault"};

std::vector<std::vector<std::string>> rows_of(const PrecisionAudit& audit) {
  std::vector<std::vector<std::string>> rows;
  for (const ModuleAudit& module : audit.modules) {
    const std::pair<const char*, const ModuleAudit::InType&> types[] = {
        {"fp16", module.fp16},
        {"bf16", module.bf16}};
    for (const auto& [type, in] : types) {
      const bool is_first = &in == &module.fp16;
      std::vector<std::string> row = {
          is_first ? module.name : "",
          is_first ? fmt::format("{:.3g}", module.largest_output) : "",
          is_first ? fmt::format("{:.3g}", module.largest_gradient) : "",
          type};
      for (const double share :
           {in.output_overflow,
            in.output_tiny,
            in.gradient_tiny,
            in.update_lost,
            in.output_error,
            in.gradient_error}) {
        row.push_back(
            std::isfinite(share) ? fmt::format("{:.3g} %", 100 * share)
                                 : "not finite");
      }
      row.push_back(in.fault);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::vector<std::string> summary_of(const PrecisionAudit& audit) {
  std::vector<std::string> lines;
  for (const std::string& problem : audit.problems) {
    lines.push_back("problem: " + problem + ".");
  }
  if (audit.problems.empty()) {
    lines.push_back(
        audit.fp16.safe_scale_from <= audit.fp16.safe_scale_to
            ? fmt::format(
                  "fp16: loss scales from {:g} to {:g} are safe; the first "
                  "overflow comes above.",
                  audit.fp16.safe_scale_from,
                  audit.fp16.safe_scale_to)
            : fmt::format(
                  "fp16: no loss scale is safe for all layers: some need {:g}, "
                  "others overflow above {:g}.",
                  audit.fp16.safe_scale_from,
                  audit.fp16.safe_scale_to));
    for (const auto& [name, type] :
         {std::pair{"fp16", &audit.fp16}, std::pair{"bf16", &audit.bf16}}) {
      if (!type->needs_masters) continue;
      lines.push_back(fmt::format(
          "{}: master weights are needed, or updates are lost; to_{} has them.",
          name,
          name));
    }
  }
  lines.push_back(
      fmt::format("recommended: {}: {}.", call_of(audit), audit.reason));
  return lines;
}

}  // namespace

Learner& PrecisionAudit::apply(Learner& learn) const {
  switch (precision) {
    case Precision::fp16:
      return learn.to_fp16(options);
    case Precision::bf16:
      return learn.to_bf16(options);
    case Precision::amp:
      return learn.to_amp();
    case Precision::fp32:
      break;
  }
  return learn.to_fp32();
}

std::string PrecisionAudit::to_string() const {
  auto rows = rows_of(*this);
  rows.insert(rows.begin(), kAuditColumns);
  std::vector<size_t> widths(kAuditColumns.size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool is_text = i == 0 || i == 3 || i + 1 == row.size();
      line += is_text ? fmt::format("{:<{}}  ", row[i], widths[i])
                      : fmt::format("{:>{}}  ", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text + fmt::format("{}\n", fmt::join(summary_of(*this), "\n"));
}

std::string PrecisionAudit::to_json() const {
  using Json = nlohmann::ordered_json;
  Json all = {{"modules", Json::array()}, {"problems", problems}};
  const auto in_type = [](const ModuleAudit::InType& in) {
    return Json{
        {"output_overflow", in.output_overflow},
        {"output_tiny", in.output_tiny},
        {"gradient_tiny", in.gradient_tiny},
        {"update_lost", in.update_lost},
        {"output_error", in.output_error},
        {"gradient_error", in.gradient_error},
        {"fault", in.fault}};
  };
  for (const ModuleAudit& module : modules) {
    all["modules"].push_back(
        {{"name", module.name},
         {"largest_output", module.largest_output},
         {"largest_gradient", module.largest_gradient},
         {"fp16", in_type(module.fp16)},
         {"bf16", in_type(module.bf16)}});
  }
  const auto whole = [](const TypeAudit& type) {
    return Json{
        {"safe_scale_from", type.safe_scale_from},
        {"safe_scale_to", type.safe_scale_to},
        {"loss_scale", type.loss_scale},
        {"needs_masters", type.needs_masters},
        {"keep_fp32", type.keep_fp32},
        {"is_sound", type.is_sound}};
  };
  all["fp16"] = whole(fp16);
  all["bf16"] = whole(bf16);
  all["amp_is_sound"] = amp_is_sound;
  all["recommendation"] = {{"call", call_of(*this)}, {"reason", reason}};
  return all.dump(2);
}

ReportSection PrecisionAudit::section() const {
  return [audit = *this](HtmlPage& page) {
    page.heading("Precision");
    for (const std::string& line : summary_of(audit)) page.paragraph(line);
    Plot plot{
        .title = "Magnitudes by depth",
        .x_label = "module",
        .log_y = true};
    Curve outputs{.label = "largest output"},
        gradients{.label = "largest gradient"};
    for (size_t i = 0; i < audit.modules.size(); ++i) {
      for (Curve* curve : {&outputs, &gradients}) {
        curve->x.push_back(static_cast<double>(i));
      }
      outputs.y.push_back(audit.modules[i].largest_output);
      gradients.y.push_back(audit.modules[i].largest_gradient);
    }
    const double last = static_cast<double>(audit.modules.size()) - 1;
    Curve limit{.label = "fp16's largest", .x = {0, last}, .y = {65504, 65504}};
    plot.curves = {outputs, gradients, limit};
    page.plot(plot);
    page.table(kAuditColumns, rows_of(audit));
  };
}

}  // namespace tern
