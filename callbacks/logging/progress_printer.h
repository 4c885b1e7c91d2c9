#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tern/learner/callback.h"
#include "tern/learner/recorder.h"

namespace tern {

/// What tables show of an epoch: train_loss, valid_loss and each metric of the
/// Learner; NaN for what it has not.
std::vector<MetricValue> table_values(
    const Learner& learn,
    const EpochRecord& epoch);

/// "▁▃▅█": one block for each value, or for the mean of its neighbours where
/// there are more than `width`; a space for what is not finite. UTF-8.
std::string sparkline(const std::vector<double>& values, size_t width = 16);

/// Prints fastai's table, a row an epoch, and keeps the sink's progress line
/// up to date. The Learner adds one by itself.
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

  std::string row(const std::vector<std::string>& cells) const;

  std::vector<size_t> widths_;
  Clock::time_point epoch_start_, pass_start_, last_draw_;
  size_t losses_before_ = 0;  // recorded when this epoch began
  bool was_training_ = true;
};

}  // namespace tern
