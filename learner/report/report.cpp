#include "tern/learner/report/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ranges>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/learner/learner.h"
#include "tern/learner/plots/plot.h"
#include "tern/learner/recorder.h"
#include "tern/learner/report/model_summary.h"
#include "tern/learner/report/report_page.h"
#include "tern/learner/report/run_facts.h"

namespace tern {

namespace {

// The plots are in a grid, so they are smaller than a plot in its own file.
constexpr double kPlotWidth = 520, kPlotHeight = 340;
// A longer table would not be readable; the curves contain all epochs.
constexpr size_t kMaxRows = 200;

std::string number(double value) {
  return std::isnan(value) ? "#na#" : fmt::format("{:.6f}", value);
}

void add_epochs(HtmlPage& page, Learner& learner) {
  const auto& epochs = learner.recorder().epochs();
  page.heading("Epochs");
  if (epochs.empty()) {
    page.paragraph("No epoch is complete yet.");
    return;
  }
  std::vector<std::string> header = {"epoch", "train_loss", "valid_loss"};
  std::vector<std::string> names;
  for (const EpochRecord& epoch : epochs) {
    for (const MetricValue& metric : epoch.metrics) {
      if (std::ranges::count(names, metric.name) == 0) {
        names.push_back(metric.name);
      }
    }
  }
  header.insert(header.end(), names.begin(), names.end());
  header.emplace_back("time");
  const auto& calls = learner.recorder().calls();
  const bool has_loaded = std::ranges::any_of(
      calls,
      [](const CallRecord& call) { return call.loaded_epoch >= 0; });
  if (has_loaded) header.emplace_back("model");
  std::vector<std::vector<std::string>> rows;
  const size_t first = epochs.size() - std::min(epochs.size(), kMaxRows);
  for (size_t i = first; i < epochs.size(); ++i) {
    const EpochRecord& epoch = epochs[i];
    std::vector<std::string> row = {
        std::to_string(epoch.epoch),
        number(epoch.train_loss),
        number(epoch.valid_loss)};
    for (const std::string& name : names) {
      const auto metric =
          std::ranges::find(epoch.metrics, name, &MetricValue::name);
      row.push_back(
          metric == epoch.metrics.end() ? "#na#" : number(metric->value));
    }
    row.push_back(clock_text(epoch.seconds));
    if (has_loaded) {
      const bool is_loaded = std::ranges::count(
                                 calls,
                                 static_cast<int64_t>(i),
                                 &CallRecord::loaded_epoch) > 0;
      row.emplace_back(is_loaded ? "loaded by SaveModel" : "");
    }
    rows.push_back(std::move(row));
  }
  page.table(header, rows);
  if (first > 0) {
    page.paragraph(
        fmt::format("The last {} of {} epochs.", kMaxRows, epochs.size()));
  }
}

// Returns the first, the highest and the last learning rate, or a single number
// if all are equal.
std::string course_of(const std::vector<double>& rates) {
  if (rates.empty()) return "";
  const double highest = *std::ranges::max_element(rates);
  const double lowest = *std::ranges::min_element(rates);
  if (highest == lowest) return fmt::format("{:.4g}", highest);
  return fmt::format(
      "{:.4g}, at most {:.4g}, {:.4g} at the end",
      rates.front(),
      highest,
      rates.back());
}

void add_calls(HtmlPage& page, const Recorder& recorder) {
  const auto& calls = recorder.calls();
  if (calls.empty()) return;
  page.heading("Calls");
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool is_last = i + 1 == calls.size();
    // Returns the part of `all` that belongs to this call.
    const auto part = [&](const auto& all, int64_t CallRecord::*first) {
      return std::vector(
          all.begin() + calls[i].*first,
          is_last ? all.end() : all.begin() + calls[i + 1].*first);
    };
    const auto epochs = part(recorder.epochs(), &CallRecord::first_epoch);
    double seconds = 0;
    for (const EpochRecord& epoch : epochs) seconds += epoch.seconds;
    rows.push_back(
        {calls[i].call,
         course_of(part(recorder.learning_rates(), &CallRecord::first_batch)),
         std::to_string(epochs.size()),
         clock_text(seconds)});
  }
  page.table(
      {"call", "learning rate of the last layer group", "epochs", "time"},
      rows);
}

bool has_points(const Plot& plot) {
  return std::ranges::any_of(plot.curves, &Curve::has_points);
}

void add_curves(HtmlPage& page, Recorder& recorder) {
  page.heading("Curves");
  if (recorder.losses().empty()) {
    page.paragraph("Nothing was trained yet.");
    return;
  }
  std::vector<Plot> plots = {
      recorder.loss_plot(),
      recorder.learning_rate_plot()};
  for (Plot plot :
       {recorder.momentum_plot(),
        recorder.metric_plot(),
        recorder.loss_scale_plot()}) {
    if (has_points(plot)) plots.push_back(std::move(plot));
  }
  for (const LoggedValues& logged : recorder.logged()) {
    Plot plot = recorder.logged_plot(logged.name);
    if (has_points(plot)) plots.push_back(std::move(plot));
  }
  for (Plot& plot : plots) {
    plot.width = kPlotWidth;
    plot.height = kPlotHeight;
  }
  page.plots(plots);
}

void add_skipped_steps(HtmlPage& page, Recorder& recorder) {
  if (!has_points(recorder.loss_scale_plot())) return;
  const auto& skips = recorder.skipped_steps();
  page.heading("Skipped steps");
  page.paragraph(fmt::format(
      "{} of {} steps were skipped because a gradient overflowed{}.",
      skips.size(),
      recorder.losses().size(),
      skips.empty() ? "; the loss scale was never too high" : ""));
  if (skips.empty()) return;
  std::vector<int64_t> batches;  // counted from 1, as in the curves
  for (const int64_t i : skips | std::views::take(50)) batches.push_back(i + 1);
  page.paragraph(fmt::format(
      "Batches {}{}.",
      fmt::join(batches, ", "),
      batches.size() < skips.size() ? ", ..." : ""));
}

// Lists callbacks with options; the training loop below lists all callbacks.
void add_callbacks(HtmlPage& page, const Callbacks& callbacks) {
  Facts facts;
  for (const CallbackHandle& callback : callbacks) {
    std::vector<std::string> options;
    for (const auto& [name, value] : callback->option_values()) {
      options.push_back(fmt::format("{} = {}", name, value));
    }
    if (options.empty()) continue;
    facts.emplace_back(
        callback->name(),
        fmt::format("{}", fmt::join(options, ", ")));
  }
  if (facts.empty()) return;
  page.subheading("Options of callbacks");
  page.properties(facts);
}

std::string result_text(FitResult result) {
  const char* more = "";
  if (result == FitResult::interrupted) more = "; can resume from a checkpoint";
  if (result == FitResult::pruned) more = ": worse than other trials";
  if (result == FitResult::failed) more = " with an error";
  return std::string(to_string(result)) + more;
}

void add_overview(HtmlPage& page, Learner& learner, bool is_running) {
  const auto& epochs = learner.recorder().epochs();
  double seconds = 0;
  for (const EpochRecord& epoch : epochs) seconds += epoch.seconds;
  const auto now =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  Facts facts = {
      {"written", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(now))},
      {"epochs", std::to_string(epochs.size())},
      {"batches", std::to_string(learner.recorder().losses().size())},
      {"time in epochs", clock_text(seconds)}};
  if (is_running) {
    facts.emplace_back(
        "now",
        fmt::format(
            "training, epoch {} of {}",
            learner.state().epoch + 1,
            learner.state().epochs));
  } else if (!learner.recorder().losses().empty() || learner.state().failed) {
    facts.emplace_back("last fit", result_text(learner.state().result));
  }
  page.properties(facts);
}

}  // namespace

HtmlPage make_report(Learner& learner, const ReportOptions& options) {
  return report_page(learner, options, learner.state().is_fitting);
}

HtmlPage
report_page(Learner& learner, const ReportOptions& options, bool is_running) {
  HtmlPage page(options.title);
  Recorder& recorder = learner.recorder();
  add_overview(page, learner, is_running);
  add_calls(page, recorder);
  add_epochs(page, learner);
  add_curves(page, recorder);
  add_skipped_steps(page, recorder);
  for (const ReportSection& section : options.sections) section(page);
  page.heading("Configuration");
  page.properties(configuration(learner));
  add_callbacks(page, learner.callbacks());
  page.heading("Training loop");
  page.preformatted(
      fmt::format("{}", fmt::join(training_loop(learner.callbacks()), "\n")));
  if (!learner.state().is_fitting) {  // otherwise the model is in use
    page.heading("Layers");
    page.preformatted(learner.summary().to_string());
  }
  page.heading("Environment");
  page.properties(environment(learner.data().device));
  return page;
}

void show_training_loop(const Learner& learner) {
  for (const std::string& line : training_loop(learner.callbacks())) {
    learner.options().sink->line(line);
  }
}

}  // namespace tern
