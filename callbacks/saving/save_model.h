#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tern/callbacks/monitor.h"

namespace tern {

/// Saves the model whenever a loss or metric improves, and loads the best one
/// when the fit ends.
///
///   learn.add<SaveModel>({.monitor = "accuracy", .name = "best"}).fit(20);
///
/// Writes the files of `Learner::save`, in LearnerOptions::model_dir. Like
/// fastai v2's SaveModelCallback, except that an epoch whose value is NaN is
/// never the best, and that a fit without a best epoch loads nothing. With Ema
/// it saves the averaged weights, because they are evaluated. With Swa the
/// model ends with the mean, and the best model stays in its file.
///
/// Weights that are NaN or infinite are never saved, and a failed save does not
/// end training: in both cases the sink gets one warning, and the files saved
/// before are kept. The model keeps its last weights if the last epoch is the
/// best and could not be saved. It also keeps them, with a warning, if the
/// value was NaN or missing in every epoch, so no epoch was the best.
///
/// After a fit without a best epoch, `learn.load("best")` fails with the same
/// explanation, even if an earlier run left a file of this name. After a stop
/// before the end of the first epoch, `learn.load("best")` loads nothing and
/// warns.
class SaveModel final : public Callback {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    double min_delta = 0;
    std::string name = "model";
    /// Also saves `name_<epoch>` every `every_epochs` epochs. 0: never.
    int64_t every_epochs = 0;
    /// Also keeps the best `top_k` epochs as `name_best_<epoch>`.
    int64_t top_k = 0;
    /// Loads the best model at the end of the fit, unless the model has the
    /// mean of Swa. With several SaveModels, the last one added determines the
    /// loaded model.
    bool load_best = true;
    /// "min" or "max": which direction is better. Empty: chosen by the metric
    /// or the name; see Monitor.
    std::string mode = {};
    /// False: keeps and loads the best epoch of all fits; its number in file
    /// names and messages then counts from the Learner's first epoch.
    bool reset_on_fit = true;
  };

  /// \throws c10::ValueError for a number below 0, an empty name or an invalid
  ///         mode.
  explicit SaveModel(Options options);
  SaveModel() : SaveModel(Options{}) {}

  /// \throws c10::ValueError if the Learner already has a SaveModel of the same
  ///         name.
  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  /// \throws c10::ValueError if no value has the monitored name or if it is
  ///         unknown which direction is better, IoError if the folder cannot be
  ///         written.
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kSaveModel; }
  /// True if the last fit ended by loading the best model.
  bool has_loaded() const { return has_loaded_; }
  OptionValues option_values() const override;

 private:
  enum class Outcome { saved, diverged, not_written };

  Outcome save_judged(Learner& learn, const std::string& name);
  Outcome save(Learner& learn, const std::string& name);
  void load_best(Learner& learn);
  bool is_there(const Learner& learn) const;
  std::string why_unsaved() const;
  void warn_without_best(Learner& learn) const;
  void keep_among_best(Learner& learn, double value, int64_t epoch);
  std::string name_of_best(int64_t epoch) const;
  int64_t number_of_epoch(Learner& learn) const;
  int64_t place_of_best(Learner& learn) const;

  Options options_;
  Monitor monitor_;
  bool has_saved_ = false;  // the best of this fit, or of all fits
  int64_t best_epoch_ = 0;  // its number
  bool has_loaded_ = false;
  bool is_best_unsaved_ = false;      // the last epoch is the best
  bool has_warned_of_write_ = false;  // in this fit
  bool has_warned_of_divergence_ = false;
  std::vector<std::pair<double, int64_t>> best_;  // value and epoch, best first
};

}  // namespace tern
