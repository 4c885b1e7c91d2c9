#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tern/callbacks/log_file.h"
#include "tern/callbacks/new_losses.h"
#include "tern/learner/callback.h"
#include "tern/learner/recorder.h"

namespace tern {

/// Writes what happens as lines of JSON, for programs that watch a training.
///
///   learn.add<JsonLinesLogger>({.every = 10}).fit(10);
///
///   {"event":"fit","time":1700000000.5,"epochs":10,"batches":64}
///   {"event":"batch","iteration":0,"loss":0.71,"smooth_loss":0.71,"lr":0.003}
///   {"event":"epoch","epoch":0,"iteration":64,"train_loss":0.14,
///    "valid_loss":0.12,"metrics":{"accuracy":0.96},"seconds":1.2}
///   {"event":"end","time":1700000012.0,"failed":false}
///
/// Each on a line of its own; numbers in full, null for NaN and infinities.
/// Batches are written once a second, when the Recorder has read their losses,
/// so that no step waits for the device. A second fit adds its lines. A full
/// disk does not end the training; the sink is told once.
class JsonLinesLogger final : public Callback {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path file = "history.jsonl";
    /// Keep the lines that the file has when the first fit begins.
    bool append = false;
    /// Each so many training batches one is written; 0: none.
    int64_t every = 0;
  };

  /// \throws c10::ValueError if `every` is below 0.
  explicit JsonLinesLogger(Options options);
  explicit JsonLinesLogger(std::filesystem::path file = "history.jsonl")
      : JsonLinesLogger(Options{.file = std::move(file)}) {}

  /// \throws c10::ValueError beside another one of the same file.
  void on_add(Learner& learn) override;
  /// \throws IoError if the file cannot be written.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict log_state(Learner& learn) override;
  const std::filesystem::path& file() const { return options_.file; }
  CallbackRole role() const override { return CallbackRole::writes; }
  int order() const override { return callback_order::kLogger; }

 private:
  void write_news(Learner& learn);
  void write_batches(Learner& learn);
  void write_epoch(Learner& learn, const EpochRecord& epoch);
  /// Writes what is pending and this.
  void write(const std::string& line);

  Options options_;
  std::optional<LogFile> file_;
  NewLosses losses_;
  NewEpochs epochs_;
  std::string pending_;  // lines of batches; written once a second
  std::chrono::steady_clock::time_point last_write_;
};

}  // namespace tern
