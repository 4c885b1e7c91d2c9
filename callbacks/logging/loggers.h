#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tern/callbacks/logging/log_file.h"
#include "tern/learner/callback.h"
#include "tern/learner/progress_printer.h"
#include "tern/learner/recorder.h"

namespace tern {

/// Base of the loggers. Opens the log when a fit begins; in a resumed run,
/// continues it from the checkpoint. Forwards the new values that the Recorder
/// has read from the device, so that a logger never synchronizes with the
/// device itself. Epochs are counted over all fits of the Learner; a second fit
/// appends to the log.
class Logger : public Callback {
 public:
  /// \throws IoError if the log cannot be written.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict log_state(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::writes; }
  int order() const override { return callback_order::kLogger; }

 protected:
  struct BatchValues {
    int64_t iteration = 0;  // training batches before it, over all fits
    double loss = 0, smooth_loss = 0, lr = 0, momentum = 0;
    std::vector<MetricValue> logged = {};  // by callbacks
  };

  /// \param every  Interval between logged training batches; 0: logs none.
  /// \throws c10::ValueError if `every` is below `least`.
  Logger(const char* name, int64_t every, int64_t least);

  bool is_open() const { return log_ != nullptr; }
  LogFile& log() { return *log_; }
  int64_t every() const { return every_; }

 private:
  /// \param resumed  End of the log as stored in the checkpoint from which the
  ///                 run resumes; empty: unknown. Null: a new log.
  virtual std::shared_ptr<LogFile> open(
      Learner& learn,
      const StateDict* resumed) = 0;
  virtual void write_fit_begin(Learner&) {}
  virtual void write_batch(const BatchValues&) {}
  virtual void write_epoch(Learner& learn, const EpochRecord& epoch) = 0;
  virtual void write_fit_end(Learner&) {}

  void write_batches(Learner& learn);
  void write_news(Learner& learn);

  int64_t every_;
  std::shared_ptr<LogFile> log_;
  // The Recorder's next loss and epoch to log.
  std::optional<size_t> next_loss_, next_epoch_;
};

/// A logger that writes one text file. If the disk is full, training continues
/// and the sink gets one warning.
class FileLogger : public Logger {
 public:
  /// \throws c10::ValueError if the Learner already has a logger of this class
  ///         for the same file.
  void on_add(Learner& learn) override;
  OptionValues option_values() const override;

 protected:
  /// \param file  Relative to `LearnerOptions::path`.
  FileLogger(
      const char* name,
      std::filesystem::path file,
      bool append,
      int64_t every);

  std::shared_ptr<LogFile> open(Learner& learn, const StateDict* resumed)
      override;

 private:
  std::filesystem::path file_;
  bool append_;
};

/// Writes the progress table to a CSV file, one row per epoch.
///
///   learn.add<CSVLogger>("history.csv").fit(10);
///
///   epoch,train_loss,valid_loss,accuracy,seconds
///   0,0.139469,0.115246,0.963199,1.25
///
/// Like fastai's CSVLogger, but with all digits, an empty cell for an unknown
/// value, and a column of seconds. A header line precedes the first row, and is
/// repeated when a callback logs a value under a new name.
class CSVLogger final : public FileLogger {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path file = "history.csv";
    /// When the first fit begins, keeps existing rows of the file.
    bool append = false;
  };

  explicit CSVLogger(const Options& options)
      : FileLogger("CSVLogger", options.file, options.append, /*every=*/0) {}
  explicit CSVLogger(std::filesystem::path file = "history.csv")
      : CSVLogger(Options{.file = std::move(file)}) {}

  StateDict log_state(Learner& learn) override;

 private:
  std::shared_ptr<LogFile> open(Learner& learn, const StateDict* resumed)
      override;
  void write_epoch(Learner& learn, const EpochRecord& epoch) override;

  std::optional<EpochColumns> columns_;  // of the last header
  bool has_rows_ = false;                // since the file was opened
};

/// Writes events as lines of JSON, for programs that monitor training.
///
///   learn.add<JsonLinesLogger>({.every = 10}).fit(10);
///
///   {"event":"fit","time":1700000000.5,"epochs":10,"batches":64}
///   {"event":"batch","iteration":0,"loss":0.71,"smooth_loss":0.71,"lr":0.003,
///    "momentum":0.9,"logged":{"grad_norm":1.5}}
///   {"event":"epoch","epoch":0,"iteration":64,"train_loss":0.14,
///    "valid_loss":0.12,"metrics":{"accuracy":0.96},"seconds":1.2}
///   {"event":"end","time":1700000012.0,"failed":false}
///   {"event":"load","name":"model","epoch":7}
///
/// The "load" event is written when SaveModel loads the best epoch.
///
/// Each event is on its own line. Numbers have all digits; NaN and infinities
/// are null. Batches are written once a second.
class JsonLinesLogger final : public FileLogger {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path file = "history.jsonl";
    /// When the first fit begins, keeps existing lines of the file.
    bool append = false;
    /// Interval between logged training batches; 0: logs none.
    int64_t every = 0;
  };

  /// \throws c10::ValueError if `every` is below 0.
  explicit JsonLinesLogger(const Options& options)
      : FileLogger(
            "JsonLinesLogger",
            options.file,
            options.append,
            options.every) {}
  explicit JsonLinesLogger(std::filesystem::path file = "history.jsonl")
      : JsonLinesLogger(Options{.file = std::move(file)}) {}

  /// Called by SaveModel: logs which epoch it has loaded.
  void log_load(const std::string& name, int64_t epoch);
  OptionValues option_values() const override;

 private:
  void write_fit_begin(Learner& learn) override;
  void write_batch(const BatchValues& batch) override;
  void write_epoch(Learner& learn, const EpochRecord& epoch) override;
  void write_fit_end(Learner& learn) override;
};

}  // namespace tern
