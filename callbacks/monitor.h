#pragma once

#include <limits>
#include <string>

#include "tern/learner/callback.h"

namespace tern {

/// Which number of an epoch a callback watches, and when it got better.
struct MonitorOptions {
  /// "train_loss", "valid_loss" or the name of a metric.
  std::string monitor = "valid_loss";
  /// `by_name` takes losses down and asks a metric which way is better.
  enum class Mode { by_name, min, max } mode = Mode::by_name;
  /// An improvement is more than this; >= 0.
  double min_delta = 0;
};

/// The best value of a monitored number so far. Part of EarlyStopping and its
/// like.
class Monitor {
 public:
  /// \param owner  Name of the callback, for messages.
  /// \throws c10::ValueError if min_delta is not a number >= 0.
  Monitor(std::string owner, MonitorOptions options);

  /// At the start of a fit: finds the number and forgets the best.
  /// \throws c10::ValueError that lists the names there are, when there is no
  ///         number of this name.
  void begin(Learner& learn);

  /// The number of the epoch that ends; NaN if it has none. Right after the
  /// Recorder's on_epoch_end.
  double value(Learner& learn) const;

  /// Whether `value` beats the best. NaN never does, and anything else beats
  /// NaN.
  bool is_better(double value) const;
  /// The same, and it becomes the best then.
  bool improves(double value);

  double best() const { return best_; }  // NaN before the first
  bool higher_is_better() const { return higher_is_better_; }
  const std::string& monitored() const { return options_.monitor; }

  /// Adds "best" to the state, and takes it from there.
  void save(StateDict& state) const;
  void load(const StateDict& state);

 private:
  std::string owner_;
  MonitorOptions options_;
  bool higher_is_better_ = false;
  double best_ = std::numeric_limits<double>::quiet_NaN();
};

/// What EarlyStopping and ReduceLROnPlateau share: they act when a number has
/// not got better for `patience` epochs.
class PatientCallback : public Callback {
 public:
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 protected:
  /// \throws c10::ValueError if patience is below 0.
  PatientCallback(
      const std::string& owner,
      MonitorOptions options,
      int64_t patience);

  const Monitor& monitor() const { return monitor_; }

 private:
  /// Patience is at its end, after `waited` epochs without improvement.
  virtual void act(Learner& learn, int64_t waited) = 0;

  Monitor monitor_;
  int64_t patience_;
  int64_t waited_ = 0;
};

}  // namespace tern
