#pragma once

#include "tern/callbacks/monitor.h"
#include "tern/callbacks/sets_learning_rate.h"

namespace tern {

/// Divides the learning rates when a number has not got better for some epochs.
///
///   learn.add<ReduceLROnPlateau>({.patience = 2}).fit(30, {1e-5, 1e-3});
///
/// Patience, factor and min_lr are fastai v2's (v1 multiplies by 0.2 and gives
/// all groups one rate). All rates are divided by the same number, so that
/// layer groups keep their ratios. The next fit begins with the rates it is
/// given.
class ReduceLROnPlateau final : public PatientCallback,
                                public SetsLearningRate {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    MonitorOptions::Mode mode = MonitorOptions::Mode::by_name;
    double min_delta = 0;
    /// Epochs in a row without improvement before a reduction; 0 as 1.
    int64_t patience = 1;
    /// What the rates are divided by; > 1.
    double factor = 10;
    /// The rate of the last layer group does not fall below this; >= 0.
    double min_lr = 0;
  };

  /// \throws c10::ValueError if an option is out of its range; at the start of
  ///         a fit when there is no number of the monitor's name.
  explicit ReduceLROnPlateau(Options options);
  ReduceLROnPlateau() : ReduceLROnPlateau(Options{}) {}

  /// \throws c10::ValueError beside a ParamScheduler of the learning rate, as
  ///         fit_one_cycle adds one: it would undo each reduction.
  void on_add(Learner& learn) override;
  int order() const override { return callback_order::kPlateau; }

 private:
  void act(Learner& learn, int64_t waited) override;

  double factor_, min_lr_;
};

}  // namespace tern
