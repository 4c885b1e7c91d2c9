#include "tern/callbacks/json_lines_logger.h"

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include "tern/callbacks/json_text.h"
#include "tern/callbacks/only_one.h"
#include "tern/data/formats/json_reader.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/recorder.h"

namespace tern {

JsonLinesLogger::JsonLinesLogger(Options options)
    : options_(std::move(options)) {
  TORCH_CHECK_VALUE(
      options_.every >= 0,
      fmt::format(
          "[JsonLinesLogger] every is {}; expected a number of batches >= 0.",
          options_.every));
}

void JsonLinesLogger::on_add(Learner& learn) {
  check_own_file(learn, *this);
}

void JsonLinesLogger::on_train_begin(Learner& learn) {
  const auto resumed = take_resumed_log(learn, *this);
  if (!file_ || (resumed && !resumed->is_empty())) {
    pending_.clear();
    file_.emplace(
        "JsonLinesLogger",
        learn.options().path / options_.file,
        options_.append || resumed,
        learn.options().sink);
    if (resumed) file_->go_back_to(*resumed);
  }
  losses_.begin();
  write(fmt::format(
      "{{\"event\":\"fit\",\"time\":{:.3f},\"epochs\":{},\"batches\":{}}}\n",
      unix_time(),
      learn.state().epochs,
      learn.batches_per_epoch()));
}

void JsonLinesLogger::on_epoch_begin(Learner& learn) {
  epochs_.on_epoch_begin(learn);
}

void JsonLinesLogger::on_batch_begin(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training) return;
  if (!file_) on_train_begin(learn);  // added while the fit ran
  losses_.on_batch_begin(learn);
}

void JsonLinesLogger::write_batches(Learner& learn) {
  losses_.each(learn, [&](const BatchValues& batch) {
    if (batch.iteration % options_.every) return;
    pending_ += fmt::format(
        "{{\"event\":\"batch\",\"iteration\":{},\"loss\":{},\"smooth_loss\":{},"
        "\"lr\":{}}}\n",
        batch.iteration,
        json_number(batch.loss),
        json_number(batch.smooth_loss),
        json_number(batch.lr));
  });
  const auto now = std::chrono::steady_clock::now();
  if (now - last_write_ >= std::chrono::seconds(1)) write("");
}

void JsonLinesLogger::write(const std::string& line) {
  pending_ += line;
  if (!pending_.empty()) file_->write(pending_);
  pending_.clear();
  last_write_ = std::chrono::steady_clock::now();
}

void JsonLinesLogger::on_batch_end(Learner& learn) {
  const TrainState& state = learn.state();
  if (!state.training || !file_) return;
  if (options_.every) write_batches(learn);
}

void JsonLinesLogger::on_epoch_end(Learner& learn) {
  if (!file_) on_train_begin(learn);
  epochs_.on_epoch_end(learn);
  write_news(learn);
}

StateDict JsonLinesLogger::log_state(Learner& learn) {
  if (!file_) return StateDict();
  write_news(learn);
  write("");
  return file_->place();
}

void JsonLinesLogger::write_news(Learner& learn) {
  if (options_.every) write_batches(learn);
  epochs_.each(learn, [&](const EpochRecord& epoch) {
    write_epoch(learn, epoch);
  });
}

void JsonLinesLogger::write_epoch(Learner& learn, const EpochRecord& epoch) {
  std::vector<std::string> metrics;
  for (const MetricValue& metric : epoch.metrics) {
    metrics.push_back(
        json_string(metric.name) + ":" + json_number(metric.value));
  }
  write(fmt::format(
      "{{\"event\":\"epoch\",\"epoch\":{},\"iteration\":{},\"train_loss\":{},"
      "\"valid_loss\":{},\"metrics\":{{{}}},\"seconds\":{:.3f}}}\n",
      epoch.epoch,
      learn.state().iteration,
      json_number(epoch.train_loss),
      json_number(epoch.valid_loss),
      fmt::join(metrics, ","),
      epoch.seconds));
}

void JsonLinesLogger::on_train_end(Learner& learn) {
  if (!file_) return;
  write(fmt::format(
      "{{\"event\":\"end\",\"time\":{:.3f},\"failed\":{}}}\n",
      unix_time(),
      learn.state().failed));
}

}  // namespace tern
