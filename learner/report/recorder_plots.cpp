#include <algorithm>
#include <cmath>

#include "tern/learner/recorder.h"
#include "tern/learner/report/plot.h"

namespace tern {

namespace {

// Batches are counted from 1.
Curve over_batches(
    std::string label,
    const std::vector<double>& values,
    double opacity = 1) {
  Curve curve{std::move(label), {}, values, opacity};
  for (size_t i = 0; i < values.size(); ++i) {
    curve.x.push_back(static_cast<double>(i + 1));
  }
  return curve;
}

// As the Recorder smooths a fit's losses, but over all fits: it does not jump
// where one begins.
std::vector<double> smoothed(const std::vector<double>& losses) {
  constexpr double kBeta = 0.98;
  double average = 0, weight = 0;
  std::vector<double> result;
  for (const double loss : losses) {
    if (std::isfinite(loss)) {
      average = kBeta * average + (1 - kBeta) * loss;
      weight = kBeta * weight + (1 - kBeta);
    }
    result.push_back(std::isfinite(loss) ? average / weight : loss);
  }
  return result;
}

}  // namespace

// Marks where each fit after the first begins.
Plot Recorder::batch_plot(
    const std::string& title,
    const std::string& y_label) {
  Plot plot{.title = title, .x_label = "batches", .y_label = y_label};
  plot.whole_x = true;
  plot.marks_label = "a fit begins";
  for (const CallRecord& call : calls_) {
    const auto first = static_cast<double>(call.first_batch + 1);
    if (call.first_batch > 0 && call.first_batch < std::ssize(lrs_) &&
        (plot.marks.empty() || plot.marks.back() != first)) {
      plot.marks.push_back(first);
    }
  }
  return plot;
}

Plot Recorder::loss_plot() {
  flush();
  Plot plot = batch_plot("Losses", "loss");
  plot.curves = {
      over_batches("train, each batch", losses_, 0.35),
      over_batches("train, smoothed", smoothed(losses_))};
  Curve valid{.label = "valid", .markers = true};
  for (size_t i = 0; i < epochs_.size(); ++i) {
    valid.x.push_back(static_cast<double>(epoch_ends_[i]));
    valid.y.push_back(epochs_[i].valid_loss);
  }
  if (valid.has_points()) plot.curves.push_back(std::move(valid));
  return plot;
}

Plot Recorder::learning_rate_plot() {
  Plot plot = batch_plot("Learning rate", "learning rate");
  plot.curves = {over_batches("", lrs_)};
  return plot;
}

Plot Recorder::momentum_plot() {
  Plot plot = batch_plot("Momentum", "momentum");
  plot.curves = {over_batches("", momentums_)};
  return plot;
}

Plot Recorder::metric_plot() {
  Plot plot{.title = "Metrics", .x_label = "epoch", .whole_x = true};
  for (size_t i = 0; i < epochs_.size(); ++i) {
    for (const MetricValue& metric : epochs_[i].metrics) {
      auto curve = std::ranges::find(plot.curves, metric.name, &Curve::label);
      if (curve == plot.curves.end()) {
        curve = plot.curves.insert(
            curve,
            Curve{.label = metric.name, .markers = true});
      }
      curve->x.push_back(static_cast<double>(epochs_[i].epoch));
      curve->y.push_back(metric.value);
    }
  }
  return plot;
}

Plot Recorder::loss_scale_plot() {
  flush();
  Plot plot = batch_plot("Loss scale", "loss scale");
  plot.log_y = true;
  plot.curves = {over_batches("loss scale", scales_)};
  Curve skips{"skipped step", {}, {}};
  skips.dots = true;
  for (const int64_t batch : skips_) {
    skips.x.push_back(static_cast<double>(batch + 1));
    skips.y.push_back(scales_[batch]);
  }
  if (!skips_.empty()) plot.curves.push_back(std::move(skips));
  return plot;
}

void Recorder::plot_losses(const std::filesystem::path& file) {
  save_plot(file, loss_plot());
}
void Recorder::plot_learning_rates(const std::filesystem::path& file) {
  save_plot(file, learning_rate_plot());
}
void Recorder::plot_momentums(const std::filesystem::path& file) {
  save_plot(file, momentum_plot());
}
void Recorder::plot_metrics(const std::filesystem::path& file) {
  save_plot(file, metric_plot());
}
void Recorder::plot_loss_scales(const std::filesystem::path& file) {
  save_plot(file, loss_scale_plot());
}

}  // namespace tern
