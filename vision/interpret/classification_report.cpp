#include "tern/vision/interpret/classification_report.h"

#include <algorithm>

#include <fmt/format.h>

namespace tern {

namespace {

using ReportRow = ClassificationReport::Row;

double share_of(double over, double under) {
  return under == 0 ? 0 : over / under;
}

ReportRow
report_row(std::string name, int64_t hits, int64_t predicted, int64_t actual) {
  const auto right = static_cast<double>(hits);
  return {
      .name = std::move(name),
      .precision = share_of(right, static_cast<double>(predicted)),
      .recall = share_of(right, static_cast<double>(actual)),
      .f1 = share_of(2 * right, static_cast<double>(predicted + actual)),
      .support = actual};
}

/// \param weight  Returns the weight of a row.
template <class Weight>
ReportRow average_row(
    std::string name,
    const std::vector<ReportRow>& rows,
    const Weight& weight) {
  ReportRow mean{.name = std::move(name)};
  double sum = 0;
  for (const ReportRow& row : rows) {
    const auto w = static_cast<double>(weight(row));
    mean.precision += w * row.precision;
    mean.recall += w * row.recall;
    mean.f1 += w * row.f1;
    mean.support += row.support;
    sum += w;
  }
  for (double* value : {&mean.precision, &mean.recall, &mean.f1}) {
    *value = share_of(*value, sum);
  }
  return mean;
}

}  // namespace

ClassificationReport classification_report(
    const std::vector<std::string>& names,
    const torch::Tensor& hits,
    const torch::Tensor& predicted,
    const torch::Tensor& actual) {
  const auto right = hits.accessor<int64_t, 1>();
  const auto called = predicted.accessor<int64_t, 1>();
  const auto there = actual.accessor<int64_t, 1>();
  ClassificationReport report;
  int64_t all_right = 0, all_called = 0, all_there = 0;
  for (int64_t i = 0; i < right.size(0); ++i) {
    report.classes.push_back(
        report_row(names[i], right[i], called[i], there[i]));
    all_right += right[i];
    all_called += called[i];
    all_there += there[i];
  }
  report.micro = report_row("micro avg", all_right, all_called, all_there);
  report.macro = average_row("macro avg", report.classes, [](const ReportRow&) {
    return 1;
  });
  report.weighted =
      average_row("weighted avg", report.classes, [](const ReportRow& row) {
        return row.support;
      });
  return report;
}

std::string ClassificationReport::to_string() const {
  std::vector<ReportRow> rows = classes;
  rows.insert(rows.end(), {micro, macro, weighted});
  size_t width = 0;
  for (const ReportRow& row : rows) width = std::max(width, row.name.size());
  std::string text = fmt::format(
      "{:<{}} {:>9} {:>7} {:>7} {:>8}\n",
      "class",
      width,
      "precision",
      "recall",
      "f1",
      "support");
  for (const ReportRow& row : rows) {
    text += fmt::format(
        "{:<{}} {:>9.4f} {:>7.4f} {:>7.4f} {:>8}\n",
        row.name,
        width,
        row.precision,
        row.recall,
        row.f1,
        row.support);
  }
  return text;
}

}  // namespace tern
