#include "tern/vision/segmentation_report.h"

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tern/learner/lambda_callback.h"
#include "tern/learner/metrics/confusion_metric.h"

namespace tern {

namespace {

/// [C, C] kDouble: rows are true classes, columns predicted.
torch::Tensor count_pixels(Learner& learn, Split split) {
  torch::Tensor counts;
  ConfusionMetric confusion("segmentation_report", [&](const torch::Tensor& m) {
    counts = m.cpu();
    return m.sum();
  });
  const auto count = std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_end = [&](Learner& l) {
        confusion.update(l.state().outputs, l.state().batch_data.targets);
      }});
  learn.add(count);
  try {
    learn.validate(split);
  } catch (...) {
    learn.remove(*count);
    throw;
  }
  learn.remove(*count);
  confusion.compute();
  return counts;
}

double ratio(double over, double under) {
  return under > 0 ? over / under : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

SegmentationReport segmentation_report(Learner& learn, Split split) {
  const torch::Tensor counts = count_pixels(learn, split);
  const torch::Tensor actual = counts.sum(1), found = counts.sum(0);
  const auto& names = learn.data().classes;
  SegmentationReport report;
  double hits = 0, present = 0, seen = 0;
  for (int64_t i = 0; i < counts.size(0); ++i) {
    const auto at = [i](const torch::Tensor& t) { return t[i].item<double>(); };
    const double hit = at(counts.diagonal());
    SegmentationReport::Row row{
        i < static_cast<int64_t>(names.size()) ? names[i] : std::to_string(i),
        static_cast<int64_t>(at(actual)),
        ratio(hit, at(actual)),
        ratio(2 * hit, at(actual) + at(found))};
    hits += hit;
    if (!std::isnan(row.accuracy)) {
      report.mean_accuracy += row.accuracy;
      ++present;
    }
    if (!std::isnan(row.dice)) {
      report.mean_dice += row.dice;
      ++seen;
    }
    report.classes.push_back(std::move(row));
  }
  report.accuracy = ratio(hits, counts.sum().item<double>());
  report.mean_accuracy = ratio(report.mean_accuracy, present);
  report.mean_dice = ratio(report.mean_dice, seen);
  return report;
}

std::string SegmentationReport::to_string() const {
  std::string text = fmt::format(
      "{:<12} {:>10} {:>9} {:>7}\n",
      "class",
      "pixels",
      "accuracy",
      "dice");
  int64_t pixels = 0;
  for (const Row& row : classes) {
    pixels += row.pixels;
    text += fmt::format(
        "{:<12} {:>10} {:>9.4f} {:>7.4f}\n",
        row.name,
        row.pixels,
        row.accuracy,
        row.dice);
  }
  return text + fmt::format(
                    "{:<12} {:>10} {:>9.4f} {:>7.4f}\n{:<12} {:>10} {:>9.4f}\n",
                    "mean",
                    "",
                    mean_accuracy,
                    mean_dice,
                    "all pixels",
                    pixels,
                    accuracy);
}

}  // namespace tern
