#include "tern/learner/progress_printer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tern/learner/learner.h"

namespace tern {

namespace {

constexpr std::chrono::milliseconds kRedraw(200);
constexpr size_t kIndent = 7;  // of the continuation lines of a wrapped row
constexpr size_t kSparkline = 16;

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

size_t columns_of(const SinkImpl& sink) {
  const std::optional<int64_t> columns = sink.columns();
  return columns ? static_cast<size_t>(std::max<int64_t>(*columns, 0))
                 : std::numeric_limits<size_t>::max();
}

// At most 8 characters for any value, so that columns stay aligned.
std::string cell(double value) {
  if (std::isnan(value)) return "#na#";
  const std::string text = fmt::format("{:.6f}", value);
  return text.size() <= 8 ? text : fmt::format("{:.6g}", value);
}

}  // namespace

void ProgressPrinter::print(
    SinkImpl& sink,
    const std::vector<std::string>& cells) const {
  std::string text;
  size_t used = 0;  // characters, counting a sparkline block as one
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0 && used + 2 + widths_[i] > max_columns_) {
      sink.line(text.substr(0, text.find_last_not_of(' ') + 1));
      text = std::string(kIndent, ' ');
      used = kIndent;
    } else if (i > 0) {
      text += "  ";
      used += 2;
    }
    text += i + 1 < cells.size() ? fmt::format("{:<{}}", cells[i], widths_[i])
                                 : cells[i];
    used += widths_[i];
  }
  sink.line(text);
}

void ProgressPrinter::on_train_begin(Learner& learn) {
  columns_.emplace(learn);
  widths_.clear();
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
  SinkImpl& sink = *learn.options().sink;
  if (columns_->add(epoch) || widths_.empty()) {
    std::vector<std::string> names = columns_->names();
    names.insert(names.begin(), "epoch");
    names.emplace_back("time");
    if (learn.options().sparkline) names.emplace_back("losses");
    max_columns_ = columns_of(sink);
    widths_.clear();
    for (const std::string& name : names) {
      const size_t least = name == "epoch" ? 5 : 8;
      widths_.push_back(
          name == "losses" ? kSparkline : std::max(name.size(), least));
    }
    print(sink, names);
  }
  std::vector<std::string> cells = {std::to_string(learn.state().epoch)};
  for (const double value : columns_->values(epoch)) {
    cells.push_back(cell(value));
  }
  cells.push_back(clock_text(epoch.seconds));
  if (learn.options().sparkline) {
    const auto& losses = learn.recorder().smooth_losses_read();
    cells.push_back(sparkline(
        {losses.begin() + static_cast<int64_t>(losses_before_), losses.end()},
        kSparkline));
    losses_before_ = losses.size();
  }
  print(sink, cells);
}

EpochColumns::EpochColumns(const Learner& learn) {
  for (const Metric& metric : learn.options().metrics) {
    names_.push_back(metric.name());
  }
}

bool EpochColumns::add(const EpochRecord& epoch) {
  const size_t before = names_.size();
  for (const MetricValue& value : epoch.metrics) {
    if (std::ranges::count(names_, value.name) == 0) {
      names_.push_back(value.name);
    }
  }
  return names_.size() > before;
}

std::vector<double> EpochColumns::values(const EpochRecord& epoch) const {
  std::vector<double> values = {epoch.train_loss, epoch.valid_loss};
  for (size_t i = values.size(); i < names_.size(); ++i) {
    const auto known =
        std::ranges::find(epoch.metrics, names_[i], &MetricValue::name);
    values.push_back(
        known == epoch.metrics.end() ? std::nan("") : known->value);
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
