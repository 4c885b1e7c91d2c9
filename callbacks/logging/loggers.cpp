#include "tern/callbacks/logging/loggers.h"

#include <cmath>
#include <fstream>
#include <ranges>
#include <span>
#include <typeinfo>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/callbacks/option_text.h"
#include "tern/data/formats/json.h"
#include "tern/kernels/check.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/loop.h"

namespace tern {

// ---- Logger ----

Logger::Logger(const char* name, int64_t every, int64_t least) : every_(every) {
  check_at_least(
      name,
      "every",
      static_cast<double>(every),
      static_cast<double>(least));
}

void Logger::on_train_begin(Learner& learn) {
  next_loss_.reset();
  const auto resumed = take_resumed_log(learn, *this);
  if (!log_ || (resumed && !resumed->is_empty())) {
    log_.reset();  // flushes before the file is truncated
    log_ = open(learn, resumed ? &*resumed : nullptr);
  }
  write_fit_begin(learn);
  log_->flush();
}

void Logger::on_epoch_begin(Learner& learn) {
  next_epoch_ = learn.recorder().epochs().size();
}

// Not in on_train_begin, because a resumed fit restores its earlier losses
// after on_train_begin.
void Logger::on_batch_begin(Learner& learn) {
  if (!learn.state().training) return;
  if (!log_) on_train_begin(learn);  // added during the fit
  if (!next_loss_) next_loss_ = learn.recorder().losses().size();
}

void Logger::on_batch_end(Learner& learn) {
  if (learn.state().training && log_) write_batches(learn);
}

void Logger::on_epoch_end(Learner& learn) {
  if (!log_) on_train_begin(learn);
  // The ending epoch must be logged, even by a logger that was added during it.
  if (!next_epoch_) next_epoch_ = learn.recorder().epochs().size() - 1;
  write_news(learn);
}

void Logger::on_train_end(Learner& learn) {
  if (!log_) return;
  write_fit_end(learn);
  log_->flush();
}

StateDict Logger::log_state(Learner& learn) {
  if (!log_) return StateDict();
  write_news(learn);
  return log_->place();
}

void Logger::write_batches(Learner& learn) {
  if (!next_loss_ || every_ == 0) return;
  const Recorder& recorder = learn.recorder();
  for (size_t& i = *next_loss_; i < recorder.losses_read().size(); ++i) {
    if (static_cast<int64_t>(i) % every_) continue;
    write_batch(
        {static_cast<int64_t>(i),
         recorder.losses_read()[i],
         recorder.smooth_losses_read()[i],
         recorder.learning_rates()[i],
         recorder.momentums()[i],
         recorder.logged_in(static_cast<int64_t>(i))});
  }
}

// A checkpoint at the end of an epoch may be written before or after this
// logger runs.
void Logger::write_news(Learner& learn) {
  write_batches(learn);
  const auto& epochs = learn.recorder().epochs();
  while (next_epoch_ && *next_epoch_ < epochs.size()) {
    write_epoch(learn, epochs[(*next_epoch_)++]);
  }
  log_->flush();
}

// ---- FileLogger ----

FileLogger::FileLogger(
    const char* name,
    std::filesystem::path file,
    bool append,
    int64_t every)
    : Logger(name, every, /*least=*/0),
      file_(std::move(file)),
      append_(append) {}

void FileLogger::on_add(Learner& learn) {
  for (const auto& callback : learn.callbacks()) {
    const auto* const other = dynamic_cast<const FileLogger*>(callback.get());
    TERN_CHECK_VALUE(
        !other || typeid(*other) != typeid(*this) ||
            other->file_.lexically_normal() != file_.lexically_normal(),
        "[Learner::add] two {} would both write {}; give one of them a "
        "different .file.",
        name(),
        file_.string());
  }
}

namespace {

// Returns the last header line of a CSV file.
std::string last_header(const std::filesystem::path& file) {
  std::string header;
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return header;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("epoch,")) header = line + "\n";
  }
  return header;
}

}  // namespace

std::shared_ptr<LogFile> FileLogger::open(
    Learner& learn,
    const StateDict* resumed) {
  const std::filesystem::path path = learn.options().path / file_;
  // The file was empty at the checkpoint, so its current table was written
  // later.
  const bool was_empty = resumed && resumed->contains("file") &&
                         !resumed->contains("size") &&
                         !last_header(path).empty();
  auto log = std::make_shared<LogFile>(
      name(),
      path,
      (append_ || resumed) && !was_empty,
      learn.options().sink);
  if (resumed) log->go_back_to(*resumed);
  return log;
}

// ---- CSVLogger ----

namespace {

std::string cell(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string row(const std::vector<std::string>& cells) {
  return fmt::format("{}\n", fmt::join(cells, ","));
}

// Returns [bytes] kByte: each name followed by a zero byte.
torch::Tensor bytes_of_names(const std::vector<std::string>& names) {
  std::vector<uint8_t> bytes;
  for (const std::string& name : names) {
    bytes.insert(bytes.end(), name.begin(), name.end());
    bytes.push_back(0);
  }
  return torch::tensor(bytes, torch::kByte);
}

std::vector<std::string> names_in(const torch::Tensor& bytes) {
  std::vector<std::string> names;
  std::string name;
  for (const uint8_t byte : std::span(
           bytes.const_data_ptr<uint8_t>(),
           static_cast<size_t>(bytes.numel()))) {
    if (byte != 0) {
      name += static_cast<char>(byte);
    } else {
      names.push_back(std::exchange(name, {}));
    }
  }
  return names;
}

}  // namespace

std::shared_ptr<LogFile> CSVLogger::open(
    Learner& learn,
    const StateDict* resumed) {
  columns_.reset();
  has_rows_ = false;
  if (resumed && resumed->contains("columns")) {
    columns_.emplace(names_in((*resumed)["columns"]));
  }
  return FileLogger::open(learn, resumed);
}

// A value logged after an epoch's row was written belongs to that epoch, but
// its name is not in the header until a later row has it.
StateDict CSVLogger::log_state(Learner& learn) {
  StateDict state = FileLogger::log_state(learn);
  if (columns_ && has_rows_) {
    state.insert("columns", bytes_of_names(columns_->names()));
  }
  return state;
}

void CSVLogger::write_epoch(Learner& learn, const EpochRecord& epoch) {
  const bool is_first = !std::exchange(has_rows_, true);
  if (!columns_) {
    columns_.emplace(learn);
    for (const auto& before : learn.recorder().epochs()) columns_->add(before);
  }
  if (columns_->add(epoch) || is_first) {
    std::vector<std::string> names = {"epoch"};
    for (const auto& name : columns_->names()) names.push_back(cell(name));
    names.emplace_back("seconds");
    const std::string header = row(names);
    if (!is_first || last_header(log().path()) != header) log().add(header);
  }
  std::vector<std::string> cells = {std::to_string(epoch.epoch)};
  for (const double value : columns_->values(epoch)) {
    cells.push_back(std::isnan(value) ? "" : fmt::format("{}", value));
  }
  cells.push_back(fmt::format("{:.3f}", epoch.seconds));
  log().add(row(cells));
}

// ---- JsonLinesLogger ----

namespace {

std::string entries(const std::vector<MetricValue>& values) {
  const auto entry = [](const MetricValue& value) {
    return json_quoted(value.name) + ":" + json_number(value.value);
  };
  return fmt::format(
      "{}",
      fmt::join(values | std::views::transform(entry), ","));
}

}  // namespace

void JsonLinesLogger::write_fit_begin(Learner& learn) {
  log().add(fmt::format(
      "{{\"event\":\"fit\",\"time\":{:.3f},\"epochs\":{},\"batches\":{}}}\n",
      unix_time(),
      learn.state().epochs,
      loop::training_loader(parts_of(learn)).size()));
}

void JsonLinesLogger::write_batch(const BatchValues& batch) {
  log().add(fmt::format(
      "{{\"event\":\"batch\",\"iteration\":{},\"loss\":{},\"smooth_loss\":{},"
      "\"lr\":{},\"momentum\":{}{}}}\n",
      batch.iteration,
      json_number(batch.loss),
      json_number(batch.smooth_loss),
      json_number(batch.lr),
      json_number(batch.momentum),
      batch.logged.empty()
          ? ""
          : fmt::format(",\"logged\":{{{}}}", entries(batch.logged))));
}

void JsonLinesLogger::write_epoch(Learner& learn, const EpochRecord& epoch) {
  log().add(fmt::format(
      "{{\"event\":\"epoch\",\"epoch\":{},\"iteration\":{},\"train_loss\":{},"
      "\"valid_loss\":{},\"metrics\":{{{}}},\"seconds\":{:.3f}}}\n",
      epoch.epoch,
      learn.state().iteration,
      json_number(epoch.train_loss),
      json_number(epoch.valid_loss),
      entries(epoch.metrics),
      epoch.seconds));
}

void JsonLinesLogger::write_fit_end(Learner& learn) {
  log().add(fmt::format(
      "{{\"event\":\"end\",\"time\":{:.3f},\"failed\":{}}}\n",
      unix_time(),
      learn.state().failed));
}

void JsonLinesLogger::log_load(const std::string& name, int64_t epoch) {
  if (!is_open()) return;  // only rank 0 writes
  log().add(fmt::format(
      "{{\"event\":\"load\",\"name\":{},\"epoch\":{}}}\n",
      json_quoted(name),
      epoch));
  log().flush();
}

OptionValues FileLogger::option_values() const {
  return {{"file", option_text(file_)}, {"append", option_text(append_)}};
}

OptionValues JsonLinesLogger::option_values() const {
  OptionValues values = FileLogger::option_values();
  values.emplace_back("every", option_text(every()));
  return values;
}

}  // namespace tern
