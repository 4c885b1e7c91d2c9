#pragma once

#include "tern/callbacks/monitor.h"

namespace tern {

/// Ends the training when a number has not got better for some epochs.
///
///   learn.add<EarlyStopping>({.monitor = "accuracy", .patience = 3}).fit(50);
///
/// Monitor, patience and min_delta are fastai v2's; which way a metric gets
/// better is asked of the metric, not guessed from its name. The best value is
/// forgotten at the start of each fit.
class EarlyStopping final : public PatientCallback {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    MonitorOptions::Mode mode = MonitorOptions::Mode::by_name;
    double min_delta = 0;
    /// Epochs in a row without improvement that end the training; 0 as 1.
    int64_t patience = 1;
  };

  /// \throws c10::ValueError if patience or min_delta is below 0; at the start
  ///         of a fit when there is no number of the monitor's name.
  explicit EarlyStopping(Options options);
  EarlyStopping() : EarlyStopping(Options{}) {}

  int order() const override { return callback_order::kEarlyStopping; }

 private:
  void act(Learner& learn, int64_t waited) override;
};

}  // namespace tern
