#include "tern/callbacks/csv_logger.h"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tern/callbacks/only_one.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/learner/recorder.h"

namespace tern {

namespace {

std::string cell(double value) {
  return std::isnan(value) ? "" : fmt::format("{}", value);
}

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string row(const std::vector<std::string>& cells) {
  return fmt::format("{}\n", fmt::join(cells, ","));
}

std::string header(Learner& learn) {
  std::vector<std::string> names = {"epoch", "train_loss", "valid_loss"};
  for (const Metric& metric : learn.options().metrics) {
    names.push_back(cell(metric.name()));
  }
  names.emplace_back("time");
  return row(names);
}

std::string row_of(Learner& learn, const EpochRecord& epoch) {
  std::vector<std::string> cells = {
      std::to_string(epoch.epoch),
      cell(epoch.train_loss),
      cell(epoch.valid_loss)};
  for (const Metric& metric : learn.options().metrics) {
    double value = std::nan("");
    for (const MetricValue& known : epoch.metrics) {
      if (known.name == metric.name()) value = known.value;
    }
    cells.push_back(cell(value));
  }
  cells.push_back(fmt::format("{:.3f}", epoch.seconds));
  return row(cells);
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line + "\n";
}

}  // namespace

void CSVLogger::on_add(Learner& learn) {
  check_own_file(learn, *this);
}

void CSVLogger::on_train_begin(Learner& learn) {
  const auto resumed = take_resumed_log(learn, *this);
  if (file_ && (!resumed || resumed->is_empty())) return;
  const std::filesystem::path path = learn.options().path / options_.file;
  file_.emplace(
      "CSVLogger",
      path,
      options_.append || resumed,
      learn.options().sink);
  if (resumed) file_->go_back_to(*resumed);
  const std::string names = header(learn);
  if (file_->is_empty() || first_line(path) != names) file_->write(names);
}

void CSVLogger::on_epoch_begin(Learner& learn) {
  epochs_.on_epoch_begin(learn);
}

void CSVLogger::on_epoch_end(Learner& learn) {
  if (!file_) on_train_begin(learn);  // added while the fit ran
  epochs_.on_epoch_end(learn);
  write_epochs(learn);
}

StateDict CSVLogger::log_state(Learner& learn) {
  if (!file_) return StateDict();
  write_epochs(learn);
  return file_->place();
}

void CSVLogger::write_epochs(Learner& learn) {
  epochs_.each(learn, [&](const EpochRecord& epoch) {
    file_->write(row_of(learn, epoch));
  });
}

}  // namespace tern
