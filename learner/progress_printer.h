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

/// The columns of the table of epochs: train_loss, valid_loss, the Learner's
/// metrics, and the names that callbacks have logged so far.
class EpochColumns {
 public:
  explicit EpochColumns(const Learner& learn);
  /// Creates columns with given names.
  explicit EpochColumns(std::vector<std::string> names)
      : names_(std::move(names)) {}
  /// Adds the names that `epoch` has in addition.
  /// \return true if there were any.
  bool add(const EpochRecord& epoch);
  const std::vector<std::string>& names() const { return names_; }
  /// Returns one value per name; NaN if the epoch does not have it.
  std::vector<double> values(const EpochRecord& epoch) const;

 private:
  std::vector<std::string> names_ = {"train_loss", "valid_loss"};
};

/// Returns a sparkline such as "▁▃▅█" in UTF-8: one block per value, or, if
/// there are more than `width` values, per mean of neighboring values. Values
/// that are not finite become spaces.
std::string sparkline(const std::vector<double>& values, size_t width = 16);

/// Prints fastai's table, one row per epoch, and updates the sink's progress
/// line. Every Learner adds one automatically. The header is printed before the
/// first row, and again when a callback has logged a value under a new name.
///
/// A table that is wider than the sink (`SinkImpl::columns`: a terminal has a
/// width, a file has none) is wrapped as in pandas: columns that do not fit
/// continue on additional, indented lines.
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

  std::optional<EpochColumns> columns_;  // of this fit
  // Column widths of the printed header, so that the rows below it line up even
  // if the terminal's window is resized.
  std::vector<size_t> widths_;
  size_t max_columns_ = 0;
  Clock::time_point epoch_start_, pass_start_, last_draw_;
  size_t losses_before_ = 0;  // when this epoch began
  bool was_training_ = true;
};

}  // namespace tern
