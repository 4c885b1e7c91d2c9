#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tern/callbacks/callback_checks.h"
#include "tern/learner/callback.h"

namespace tern {

/// Tracks the best value of a monitored loss, metric or logged value. `mode`
/// sets which direction is better. If it is empty, a metric's own direction
/// applies, also to its value on training batches such as "train_accuracy". For
/// any other name that contains "loss" or "error", lower is better, as in
/// fastai. Used by EarlyStopping, ReduceLROnPlateau, SaveModel and PruneTrial.
class Monitor {
 public:
  /// \param owner         Name of the callback, for messages.
  /// \param monitored     "train_loss", "valid_loss", or the name of a metric
  ///                      or of a value that a callback logs.
  /// \param min_delta     Values must improve by more than this.
  /// \param mode          "min": lower is better. "max": higher is better.
  ///                      Empty: chosen by the metric or the name.
  /// \param reset_on_fit  Forgets the best value at the start of each fit.
  /// \throws c10::ValueError if min_delta is NaN or negative, or for any other
  ///         mode.
  Monitor(
      std::string owner,
      std::string monitored,
      double min_delta,
      const std::string& mode = "",
      bool reset_on_fit = true);

  /// Called at the start of a fit: forgets the best value, unless it is kept
  /// across fits. Logs a message if no metric has the name, which may be
  /// misspelled.
  /// \throws c10::ValueError for "valid_loss" without validation data, or if
  ///         neither the mode nor the name determines which direction is
  ///         better.
  void begin(Learner& learn);

  /// Returns the value of the current epoch, or NaN if there is none. Call it
  /// after on_epoch_end of the Recorder and of the callbacks that log values.
  /// \throws c10::ValueError if no epoch so far has a value of this name; the
  ///         message lists the available names.
  double value(Learner& learn);
  /// Returns, for example, "accuracy was NaN in all 3 epochs" if the value was
  /// NaN or missing in every epoch of the fit; otherwise empty.
  std::string why_no_value() const;

  /// True if `value` is better than the best one so far. NaN is never better;
  /// any number is better than NaN.
  bool is_better(double value) const;
  /// Like `is_better`; stores a better `value` as the best one.
  bool improves(double value);

  double best() const { return best_; }  // NaN before the first
  bool higher_is_better() const { return higher_is_better_; }
  bool resets_on_fit() const { return resets_on_fit_; }
  /// Returns " of this fit" or " of all fits", the scope of the best value;
  /// empty in a Learner's first fit, where both are the same.
  std::string scope(Learner& learn) const;
  const std::string& owner() const { return owner_; }
  const std::string& monitored() const { return monitored_; }

  /// Returns this class's part of `Callback::option_values`.
  OptionValues option_values() const;

  /// Adds the best value and the epoch counts to `state`, and restores them.
  void save(StateDict& state) const;
  void load(const StateDict& state);

 private:
  [[noreturn]] void refuse(Learner& learn) const;
  std::optional<double> find(Learner& learn) const;
  std::optional<bool> find_direction(const Learner& learn) const;

  std::string owner_, monitored_;
  double min_delta_;
  std::optional<bool> mode_;  // true: higher is better; unset: no mode
  bool resets_on_fit_;
  bool higher_is_better_ = false;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  // Number of epochs of this fit, of epochs with a value, and of epochs with a
  // value that is not NaN.
  int64_t epochs_ = 0, with_value_ = 0, with_number_ = 0;
};

/// Base of callbacks that act when a monitored value has not improved for
/// `patience` epochs of a fit. The best value is forgotten at the start of each
/// fit, unless reset_on_fit is false.
class PatientCallback : public Callback {
 public:
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  /// Warns if the value was NaN or missing in every epoch.
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;

 protected:
  /// \throws c10::ValueError if patience is below 0.
  PatientCallback(Monitor monitor, int64_t patience);

 private:
  /// Called after `patience` epochs without an improvement.
  /// \param reason  For example "valid_loss did not improve on 0.25 for 3
  ///                epochs".
  virtual void act(Learner& learn, const std::string& reason) = 0;

  Monitor monitor_;
  int64_t patience_;
  int64_t waited_ = 0;
};

/// Ends training when a loss or metric has not improved for `patience` epochs.
///
///   learn.add<EarlyStopping>({.monitor = "accuracy", .patience = 3}).fit(50);
///
/// `monitor`, `patience`, `min_delta` and `reset_on_fit` are fastai v2's. A
/// metric determines whether higher is better.
class EarlyStopping final : public PatientCallback {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    double min_delta = 0;
    /// Consecutive epochs without an improvement that end training; 0 acts as
    /// 1.
    int64_t patience = 1;
    /// "min" or "max": which direction is better. Empty: chosen by the metric
    /// or the name; see Monitor.
    std::string mode = {};
    /// False: a value must also improve on the best value of earlier fits.
    bool reset_on_fit = true;
  };

  /// \throws c10::ValueError if an option is out of range. A fit throws it at
  ///         its start if neither the mode nor the name determines the better
  ///         direction, and after its first epoch if no value has the monitored
  ///         name.
  explicit EarlyStopping(const Options& options);
  EarlyStopping() : EarlyStopping(Options{}) {}

  int order() const override { return callback_order::kEarlyStopping; }

 private:
  void act(Learner& learn, const std::string& reason) override;
};

/// Divides the learning rates when a loss or metric has not improved for
/// `patience` epochs.
///
///   learn.add<ReduceLROnPlateau>({.patience = 2}).fit(30, {1e-5, 1e-3});
///
/// `patience`, `factor` and `min_lr` are fastai v2's (v1 multiplies by 0.2 and
/// gives all groups the same learning rate). All learning rates are divided by
/// the same number, so that the layer groups keep their ratios. The next fit
/// starts with its own learning rates.
class ReduceLROnPlateau final : public PatientCallback,
                                public SetsHyperParameter {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    double min_delta = 0;
    /// Consecutive epochs without an improvement before a reduction; 0 acts as
    /// 1.
    int64_t patience = 1;
    /// Divisor of the learning rates; > 1.
    double factor = 10;
    /// Lower bound of the last layer group's learning rate; >= 0.
    double min_lr = 0;
    /// "min" or "max": which direction is better. Empty: chosen by the metric
    /// or the name; see Monitor.
    std::string mode = {};
    /// False: a value must also improve on the best value of earlier fits.
    bool reset_on_fit = true;
  };

  /// \throws c10::ValueError if an option is out of range. A fit throws it at
  ///         its start if neither the mode nor the name determines the better
  ///         direction, and after its first epoch if no value has the monitored
  ///         name.
  explicit ReduceLROnPlateau(const Options& options);
  ReduceLROnPlateau() : ReduceLROnPlateau(Options{}) {}

  /// \throws c10::ValueError if another callback schedules the learning rate,
  ///         as with fit_one_cycle; the schedule would undo each reduction.
  void on_add(Learner& learn) override;
  int order() const override { return callback_order::kPlateau; }
  OptionValues option_values() const override;

 private:
  void act(Learner& learn, const std::string& reason) override;

  double factor_, min_lr_;
};

}  // namespace tern
