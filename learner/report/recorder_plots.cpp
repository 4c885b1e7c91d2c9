#include <algorithm>

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

Plot batch_plot(std::string title, std::string y_label) {
  return {std::move(title), "batches", std::move(y_label), {}};
}

}  // namespace

Plot Recorder::loss_plot() {
  flush();
  Plot plot = batch_plot("Losses", "loss");
  plot.curves = {
      over_batches("train, each batch", losses_, 0.35),
      over_batches("train, smoothed", smooth_losses_)};
  Curve valid{"valid", {}, {}};
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
  Plot plot = batch_plot("Metrics", "");
  for (size_t i = 0; i < epochs_.size(); ++i) {
    for (const MetricValue& metric : epochs_[i].metrics) {
      auto curve = std::ranges::find(plot.curves, metric.name, &Curve::label);
      if (curve == plot.curves.end()) {
        curve = plot.curves.insert(curve, Curve{metric.name, {}, {}});
      }
      curve->x.push_back(static_cast<double>(epoch_ends_[i]));
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
