#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tern/callbacks/monitor.h"
#include "tern/learner/train_state.h"

namespace tern {

struct LearnerParts;  // learner/learner_parts.h

/// The trials of a hyper-parameter search, each a Learner with a PruneTrial, in
/// the order in which they began. Trials run one after another.
class Study {
 public:
  struct Trial {
    std::string name;
    /// Of the monitor, one for each epoch over all fits of the trial; NaN where
    /// an epoch had none.
    std::vector<double> values;
    /// How its last fit ended; `interrupted` while it runs, and `failed` also
    /// where TerminateOnNaN ended it.
    FitResult result = FitResult::interrupted;
  };

  const std::vector<Trial>& trials() const { return trials_; }
  /// Returns the trial with the best value among those whose result is
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

/// Ends a trial of a hyper-parameter search once it is worse than the median of
/// earlier trials: Optuna's MedianPruner, with its defaults.
///
///   auto study = std::make_shared<Study>();
///   for (double lr : {1e-4, 1e-3, 1e-2}) {
///     Learner learn(data, make_model());
///     learn.add<PruneTrial>({.study = study}).fit(10, lr);
///     if (learn.state().result == FitResult::pruned) continue;
///   }
///
/// After each epoch but a fit's last it compares the best value of the trial so
/// far with the values that complete trials had in the same epoch. When it is
/// worse than their median, or was never a number, the fit ends, as by
/// EarlyStopping, with `state().result` FitResult::pruned; `fine_tune` then
/// leaves out its second part. Of several ranks all end, if one of them has seen
/// other trials.
///
/// Only complete trials are compared with. A search that was interrupted makes
/// its trials again in their order: those that `resume` a checkpoint put their
/// values back into the study.
class PruneTrial final : public Callback {
 public:
  struct Options {
    /// Shared by all trials of the search.
    std::shared_ptr<Study> study = {};
    /// Of the trial, for `Study::trials`; empty: its number, from 0.
    std::string name = {};
    std::string monitor = "valid_loss";
    /// "min" or "max": which is better. Empty: a loss, a metric or the name says
    /// it, see Monitor.
    std::string mode = {};
    /// Complete trials before the first is pruned.
    int64_t startup_trials = 5;
    /// Epochs of each trial in which it is not pruned.
    int64_t warmup_epochs = 0;
  };

  /// \throws c10::ValueError without a study, or for a number below 0 or another
  ///         mode.
  explicit PruneTrial(Options options);

  /// \throws c10::ValueError beside another one.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError for another Learner than before, a monitor other
  ///         than that of the study's trials, and as EarlyStopping.
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;
  CallbackRole role() const override { return CallbackRole::watches; }
  /// Before EarlyStopping, which leaves out an epoch after which a fit ends.
  int order() const override { return callback_order::kPlateau; }

 private:
  Study::Trial& trial();
  bool is_worse(std::string& why);

  Options options_;
  Monitor monitor_;
  int64_t number_ = -1;  // of the trial; -1 before it begins
  const LearnerParts* learner_ = nullptr;
};

}  // namespace tern
