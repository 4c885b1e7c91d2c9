#pragma once

#include <filesystem>
#include <optional>

#include "tern/callbacks/log_file.h"
#include "tern/callbacks/new_losses.h"
#include "tern/learner/callback.h"

namespace tern {

/// Writes the table of epochs into a CSV file, a row when an epoch ends.
///
///   learn.add<CSVLogger>("history.csv").fit(10);
///
///   epoch,train_loss,valid_loss,accuracy,time
///   0,0.139469,0.115246,0.963199,1.25
///
/// As fastai's CSVLogger, with numbers in full, an empty cell for what is not
/// known, and seconds. Epochs count on over all fits of the Learner; a second
/// fit adds its rows. A full disk does not end the training; the sink is told
/// once.
class CSVLogger final : public Callback {
 public:
  struct Options {
    /// Relative to `LearnerOptions::path`.
    std::filesystem::path file = "history.csv";
    /// Keep the rows that the file has when the first fit begins.
    bool append = false;
  };

  explicit CSVLogger(Options options) : options_(std::move(options)) {}
  explicit CSVLogger(std::filesystem::path file = "history.csv")
      : CSVLogger(Options{.file = std::move(file)}) {}

  /// \throws c10::ValueError beside another one of the same file.
  void on_add(Learner& learn) override;
  /// \throws IoError if the file cannot be written.
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  StateDict log_state(Learner& learn) override;
  const std::filesystem::path& file() const { return options_.file; }
  CallbackRole role() const override { return CallbackRole::writes; }
  int order() const override { return callback_order::kLogger; }

 private:
  void write_epochs(Learner& learn);

  Options options_;
  std::optional<LogFile> file_;
  NewEpochs epochs_;
};

}  // namespace tern
