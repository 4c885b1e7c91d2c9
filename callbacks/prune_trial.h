#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tern/callbacks/monitor.h"
#include "tern/learner/train_state.h"

namespace tern {

struct LearnerParts;  // learner/learner_parts.h

/// The trials of a hyperparameter search, in the order in which they started.
/// Each trial is a Learner with a PruneTrial. Trials run one after another.
class Study {
 public:
  struct Trial {
    std::string name;
    /// Monitored values, one per epoch over all fits of the trial; NaN for an
    /// epoch without a value.
    std::vector<double> values;
    /// Result of the last fit: `interrupted` while it runs; `failed` if
    /// TerminateOnNaN or an error ended it.
    FitResult result = FitResult::interrupted;
  };

  const std::vector<Trial>& trials() const { return trials_; }
  /// Returns the trial with the best value among trials whose result is
  /// `completed`; null if there is none.
  const Trial* best() const;
  /// Returns a table: name, epochs, best value and result of each trial.
  std::string to_string() const;

 private:
  friend class PruneTrial;

  std::vector<Trial> trials_;
  std::string monitored_;  // the same in all trials
  bool higher_is_better_ = false;
};

/// Ends a trial of a hyperparameter search once it is worse than the median of
/// earlier trials, like Optuna's MedianPruner and with its defaults.
///
///   auto study = std::make_shared<Study>();
///   for (double lr : {1e-4, 1e-3, 1e-2}) {
///     Learner learn(data, make_model());
///     learn.add<PruneTrial>({.study = study}).fit(10, lr);
///     if (learn.state().result == FitResult::pruned) continue;
///   }
///
/// After each epoch except the last of a fit, compares the best value of the
/// trial so far with the values of complete trials in the same epoch. If the
/// best value is worse than their median, or the monitored value was NaN in
/// every epoch, the fit ends as with EarlyStopping, with FitResult::pruned as
/// `state().result`; `fine_tune` then skips its second phase. With several
/// ranks, all of them end as soon as one decides to, since each rank may have
/// seen different trials.
///
/// Compares only with complete trials. To continue an interrupted search, run
/// its trials again in the same order. Trials that `resume` from a checkpoint
/// restore their values in the study.
class PruneTrial final : public Callback {
 public:
  struct Options {
    /// Shared by all trials of the search.
    std::shared_ptr<Study> study = {};
    /// Name of the trial in `Study::trials`; empty: its number, from 0.
    std::string name = {};
    std::string monitor = "valid_loss";
    /// "min" or "max": which direction is better. Empty: chosen by the metric
    /// or the name; see Monitor.
    std::string mode = {};
    /// Number of complete trials before any trial can be pruned.
    int64_t startup_trials = 5;
    /// Number of epochs before a trial can be pruned.
    int64_t warmup_epochs = 0;
  };

  /// \throws c10::ValueError without a study, for a number below 0, or for an
  ///         invalid mode.
  explicit PruneTrial(Options options);

  /// \throws c10::ValueError if the Learner already has a PruneTrial.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError if a second Learner uses this callback, or if the
  ///         monitor differs from that of the study's earlier trials. Also
  ///         throws the errors that EarlyStopping throws here.
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;
  CallbackRole role() const override { return CallbackRole::watches; }
  /// Runs before EarlyStopping, which ignores an epoch that already ends the
  /// fit.
  int order() const override { return callback_order::kPlateau; }

 private:
  Study::Trial& trial();
  bool is_worse(std::string& why);
  void look_for_nan(Learner& learn);

  Options options_;
  Monitor monitor_;
  int64_t number_ = -1;        // of the trial; -1 before it starts
  bool has_diverged_ = false;  // TerminateOnNaN has ended the fit
  const LearnerParts* learner_ = nullptr;
};

}  // namespace tern
