#pragma once

#include <filesystem>

#include "tern/learner/callback.h"
#include "tern/learner/report/report.h"

namespace tern {

/// Writes `Learner::report` to a file when a fit begins, after each epoch, and
/// when the fit ends or fails.
///
///   learn.add<HtmlReport>({.file = "run.html"}).fit(10);
///
/// Replaces the file atomically. If the file cannot be written at the start,
/// the fit ends with an error. If the disk is full or a later write fails, logs
/// one warning and training continues.
class HtmlReport final : public Callback {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path file = "report.html";
    ReportOptions report = {};
  };

  explicit HtmlReport(Options options);
  HtmlReport() : HtmlReport(Options{}) {}

  /// \throws IoError if the file cannot be written for a reason other than a
  ///         full disk.
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::writes; }
  int order() const override { return callback_order::kSaveCheckpoint - 1; }
  OptionValues option_values() const override;

 private:
  // If the write fails: throws if `is_first` and the disk is not full,
  // otherwise logs one warning.
  void write_or_warn(Learner& learn, bool is_running, bool is_first = false);

  Options options_;
  bool has_warned_ = false;
};

}  // namespace tern
