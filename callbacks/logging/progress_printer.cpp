#include "tern/callbacks/logging/progress_printer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tern/learner/learner.h"

namespace tern {

namespace {

constexpr std::chrono::milliseconds kRedraw(200);

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string ProgressPrinter::row(const std::vector<std::string>& cells) const {
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    text += i + 1 < cells.size() ? fmt::format("{:<{}}  ", cells[i], widths_[i])
                                 : cells[i];
  }
  return text;
}

void ProgressPrinter::on_train_begin(Learner& learn) {
  std::vector<std::string> names = {"epoch"};
  for (const auto& value : table_values(learn, {})) names.push_back(value.name);
  names.emplace_back("time");
  if (learn.options().sparkline) names.push_back("losses");
  widths_.clear();
  for (const std::string& name : names) {
    widths_.push_back(name == "epoch" ? 5 : std::max<size_t>(name.size(), 8));
  }
  learn.options().sink->line(row(names));
  last_draw_ = Clock::now();
}

void ProgressPrinter::on_epoch_begin(Learner& learn) {
  losses_before_ = learn.recorder().losses().size();
  epoch_start_ = pass_start_ = Clock::now();
  was_training_ = true;
}

void ProgressPrinter::on_batch_end(Learner& learn) {
  TrainState& state = learn.state();
  const Clock::time_point now = Clock::now();
  if (state.training != was_training_) {
    was_training_ = state.training;
    pass_start_ = now;
  }
  if (!learn.state().is_fitting || now - last_draw_ < kRedraw) return;
  last_draw_ = now;
  const auto& smooth = learn.recorder().smooth_losses();
  const double loss = smooth.empty() ? std::nan("") : smooth.back();
  state.smooth_loss = torch::scalar_tensor(loss, torch::kDouble);
  const int64_t done = state.batch + 1;
  const double spent = seconds(now - pass_start_);
  learn.options().sink->progress(
      {state.epoch,
       state.epochs,
       done,
       state.batches,
       state.training,
       loss,
       seconds(now - epoch_start_),
       spent / static_cast<double>(done) *
           static_cast<double>(state.batches - done)});
}

void ProgressPrinter::on_epoch_end(Learner& learn) {
  const EpochRecord& epoch = learn.recorder().epochs().back();
  std::vector<std::string> cells = {std::to_string(learn.state().epoch)};
  for (const auto& [name, value] : table_values(learn, epoch)) {
    cells.push_back(std::isnan(value) ? "#na#" : fmt::format("{:.6f}", value));
  }
  const auto whole = static_cast<int64_t>(epoch.seconds);
  cells.push_back(fmt::format("{:02}:{:02}", whole / 60, whole % 60));
  if (learn.options().sparkline) {
    const auto& losses = learn.recorder().smooth_losses_read();
    cells.push_back(sparkline(
        {losses.begin() + static_cast<int64_t>(losses_before_), losses.end()}));
    losses_before_ = losses.size();
  }
  learn.options().sink->line(row(cells));
}

std::vector<MetricValue> table_values(
    const Learner& learn,
    const EpochRecord& epoch) {
  std::vector<MetricValue> values = {
      {"train_loss", epoch.train_loss},
      {"valid_loss", epoch.valid_loss}};
  for (const Metric& metric : learn.options().metrics) {
    const auto known =
        std::ranges::find(epoch.metrics, metric.name(), &MetricValue::name);
    values.push_back(
        known == epoch.metrics.end() ? MetricValue{metric.name()} : *known);
  }
  return values;
}

std::string sparkline(const std::vector<double>& values, size_t width) {
  static constexpr std::array kBlocks =
      {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t columns = std::min(width, values.size());
  std::vector<double> means;
  for (size_t i = 0; i < columns; ++i) {
    const size_t begin = i * values.size() / columns;
    const size_t end = (i + 1) * values.size() / columns;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += values[j];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (!std::isfinite(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::string line;
  for (const double mean : means) {
    if (!std::isfinite(mean)) {
      line += ' ';
      continue;
    }
    const double level = high > low ? (mean - low) / (high - low) : 0;
    line += kBlocks[static_cast<size_t>(std::lround(level * 7))];
  }
  return line;
}

}  // namespace tern
