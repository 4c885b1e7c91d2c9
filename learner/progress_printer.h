#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tern/data/support/sink.h"
#include "tern/learner/callback.h"
#include "tern/learner/recorder.h"

namespace tern {

/// The columns of a table of epochs: train_loss, valid_loss, the Learner's
/// metrics, and what callbacks have logged so far.
class EpochColumns {
 public:
  explicit EpochColumns(const Learner& learn);
  /// With the names that another one had.
  explicit EpochColumns(std::vector<std::string> names)
      : names_(std::move(names)) {}
  /// Adds the names that are new in `epoch`. \return whether there are some.
  bool add(const EpochRecord& epoch);
  const std::vector<std::string>& names() const { return names_; }
  /// One for each name; NaN for what the epoch does not have.
  std::vector<double> values(const EpochRecord& epoch) const;

 private:
  std::vector<std::string> names_ = {"train_loss", "valid_loss"};
};

/// "▁▃▅█": one block for each value, or for the mean of its neighbors where
/// there are more than `width`; a space for what is not finite. UTF-8.
std::string sparkline(const std::vector<double>& values, size_t width = 16);

/// Prints fastai's table, a row an epoch, and keeps the sink's progress line
/// up to date. The Learner adds one by itself. The header comes with the first
/// row, and again when a callback has logged a value under a new name. A table
/// that is wider than the sink shows (`SinkImpl::columns`: a terminal has a
/// width, a file has none) is broken, as pandas breaks one: further lines go on
/// with the columns that did not fit, indented.
class ProgressPrinter final : public Callback {
 public:
  void on_train_begin(Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kProgress; }

 private:
  using Clock = std::chrono::steady_clock;

  void print(SinkImpl& sink, const std::vector<std::string>& cells) const;

  std::optional<EpochColumns> columns_;  // of the fit
  // Of the header that was printed, so that the rows below it fit it, whatever
  // becomes of the terminal's window.
  std::vector<size_t> widths_;
  size_t max_columns_ = 0;
  Clock::time_point epoch_start_, pass_start_, last_draw_;
  size_t losses_before_ = 0;  // recorded when this epoch began
  bool was_training_ = true;
};

}  // namespace tern
