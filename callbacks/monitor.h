#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tern/callbacks/callback_checks.h"
#include "tern/learner/callback.h"

namespace tern {

/// The best value so far of a monitored loss, metric or logged value. Which way
/// is better `mode` says; without it lower is better for losses, and for what
/// has "loss" or "error" in its name, as in fastai; a metric says it itself, of
/// training batches too ("train_accuracy"). Part of EarlyStopping,
/// ReduceLROnPlateau and SaveModel.
class Monitor {
 public:
  /// \param owner         Name of the callback, for messages.
  /// \param monitored     "train_loss", "valid_loss" or the name of a metric or
  ///                      of a value that a callback logs.
  /// \param min_delta     An improvement is more than this.
  /// \param mode          "min": lower is better; "max": higher is; empty: as
  ///                      above.
  /// \param reset_on_fit  Whether each fit forgets the best of those before it.
  /// \throws c10::ValueError if min_delta is not a number >= 0, or for another
  ///         mode.
  Monitor(
      std::string owner,
      std::string monitored,
      double min_delta,
      const std::string& mode = "",
      bool reset_on_fit = true);

  /// At the start of a fit: forgets the best value, unless it is kept over
  /// fits. Says so in a line when the name is no metric's, for it may be
  /// misspelt.
  /// \throws c10::ValueError for "valid_loss" without validation data, and
  ///         where neither the mode nor the name says which way is better.
  void begin(Learner& learn);

  /// The value of the epoch that ends; NaN if it has none. After on_epoch_end
  /// of the Recorder and of whoever logs the value.
  /// \throws c10::ValueError that lists the names there are, when no epoch has
  ///         had a value of this name.
  double value(Learner& learn);
  /// "accuracy was NaN in all 3 epochs", of a fit in which it never was a
  /// number; empty otherwise.
  std::string why_no_value() const;

  /// Whether `value` beats the best. NaN never does, and anything else beats
  /// NaN.
  bool is_better(double value) const;
  /// The same, and takes `value` as the best if so.
  bool improves(double value);

  double best() const { return best_; }  // NaN before the first
  bool higher_is_better() const { return higher_is_better_; }
  bool resets_on_fit() const { return resets_on_fit_; }
  /// " of this fit" or " of all fits", which the best is; empty in a Learner's
  /// first fit, where it is both.
  std::string scope(Learner& learn) const;
  const std::string& owner() const { return owner_; }
  const std::string& monitored() const { return monitored_; }

  /// Its part of `Callback::option_values`.
  OptionValues option_values() const;

  /// Adds "best" and what it has seen to the state, and takes it from there.
  void save(StateDict& state) const;
  void load(const StateDict& state);

 private:
  [[noreturn]] void refuse(Learner& learn) const;
  std::optional<double> find(Learner& learn) const;
  std::optional<bool> find_direction(const Learner& learn) const;

  std::string owner_, monitored_;
  double min_delta_;
  std::optional<bool> mode_;  // whether it says that higher is better
  bool resets_on_fit_;
  bool higher_is_better_ = false;
  double best_ = std::numeric_limits<double>::quiet_NaN();
  // Epochs of this fit, and how many had the value, as NaN or as a number.
  int64_t epochs_ = 0, with_value_ = 0, with_number_ = 0;
};

/// Base of callbacks that act when a monitored value has not improved for
/// `patience` epochs of a fit. The best value is forgotten at the start of each
/// fit, or kept with reset_on_fit = false.
class PatientCallback : public Callback {
 public:
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  /// Warns if the value was not a number in any epoch.
  void on_train_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;

 protected:
  /// \throws c10::ValueError if patience is below 0.
  PatientCallback(Monitor monitor, int64_t patience);

 private:
  /// After `patience` epochs without an improvement.
  /// \param reason  "valid_loss did not improve on 0.25 for 3 epochs"
  virtual void act(Learner& learn, const std::string& reason) = 0;

  Monitor monitor_;
  int64_t patience_;
  int64_t waited_ = 0;
};

/// Ends the training when a loss or metric has not improved for some epochs.
///
///   learn.add<EarlyStopping>({.monitor = "accuracy", .patience = 3}).fit(50);
///
/// Monitor, patience, min_delta and reset_on_fit are fastai v2's; whether higher
/// is better is asked of the metric.
class EarlyStopping final : public PatientCallback {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    double min_delta = 0;
    /// Epochs in a row without improvement that end the training; 0 as 1.
    int64_t patience = 1;
    /// "min" or "max": which is better. Empty: a loss, a metric or the name says
    /// it, see Monitor.
    std::string mode = {};
    /// False: the best of earlier fits is to be beaten too.
    bool reset_on_fit = true;
  };

  /// \throws c10::ValueError if an option is out of its range; at the start of a
  ///         fit when it is not known which way is better; at the end of the
  ///         first epoch when it has no value of the monitor's name.
  explicit EarlyStopping(const Options& options);
  EarlyStopping() : EarlyStopping(Options{}) {}

  int order() const override { return callback_order::kEarlyStopping; }

 private:
  void act(Learner& learn, const std::string& reason) override;
};

/// Divides the learning rates when a loss or metric has not improved for some
/// epochs.
///
///   learn.add<ReduceLROnPlateau>({.patience = 2}).fit(30, {1e-5, 1e-3});
///
/// Patience, factor and min_lr are fastai v2's (v1 multiplies by 0.2 and gives
/// all groups one learning rate). All learning rates are divided by the same
/// number, so that layer groups keep their ratios. The next fit begins with the
/// learning rates it is given.
class ReduceLROnPlateau final : public PatientCallback,
                                public SetsHyperParameter {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    double min_delta = 0;
    /// Epochs in a row without improvement before a reduction; 0 as 1.
    int64_t patience = 1;
    /// What the learning rates are divided by; > 1.
    double factor = 10;
    /// Lower bound of the last layer group's learning rate; >= 0.
    double min_lr = 0;
    /// "min" or "max": which is better. Empty: a loss, a metric or the name says
    /// it, see Monitor.
    std::string mode = {};
    /// False: the best of earlier fits is to be beaten too.
    bool reset_on_fit = true;
  };

  /// \throws c10::ValueError if an option is out of its range; at the start of a
  ///         fit when it is not known which way is better; at the end of the
  ///         first epoch when it has no value of the monitor's name.
  explicit ReduceLROnPlateau(const Options& options);
  ReduceLROnPlateau() : ReduceLROnPlateau(Options{}) {}

  /// \throws c10::ValueError beside a scheduler of the learning rate, as
  ///         fit_one_cycle adds one: it would undo each reduction.
  void on_add(Learner& learn) override;
  int order() const override { return callback_order::kPlateau; }
  OptionValues option_values() const override;

 private:
  void act(Learner& learn, const std::string& reason) override;

  double factor_, min_lr_;
};

}  // namespace tern
