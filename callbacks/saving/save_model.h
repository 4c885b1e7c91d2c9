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
/// Files are those of `Learner::save`, in LearnerOptions::model_dir. As fastai
/// v2's SaveModelCallback, except: an epoch whose value is NaN is never the
/// best, and a fit without a best epoch loads nothing. With Ema it saves the
/// averages, which validation evaluates. With Swa the model ends with the mean,
/// and the best stays in its file.
///
/// Weights that are not finite are never saved, and a save that fails does not
/// end the training: the sink gets one warning of either, and what was saved
/// before is kept. If the last epoch is the best and could not be saved, the
/// model keeps its weights. So it does after a fit in which no epoch was the
/// best, for the value was NaN or missing in each: the sink gets a warning.
///
/// `learn.load("best")` after a fit then says so too, also where an earlier
/// training has left a file of this name; after a stop that came before the
/// first epoch's end it loads nothing, with a warning.
class SaveModel final : public Callback {
 public:
  struct Options {
    std::string monitor = "valid_loss";
    double min_delta = 0;
    std::string name = "model";
    /// Also saves `name_<epoch>` every so many epochs. 0: never.
    int64_t every_epochs = 0;
    /// Also keeps this many best epochs as `name_best_<epoch>`.
    int64_t top_k = 0;
    /// Loads the best at the end of the fit, except over the mean of Swa. Of
    /// several SaveModels the last added decides.
    bool load_best = true;
    /// "min" or "max": which is better. Empty: a loss, a metric or the name says
    /// it, see Monitor.
    std::string mode = {};
    /// False: the best of all fits is kept and loaded, and the epochs in names
    /// and messages of the best count from the Learner's first.
    bool reset_on_fit = true;
  };

  /// \throws c10::ValueError for a number below 0, an empty name or another
  ///         mode.
  explicit SaveModel(Options options);
  SaveModel() : SaveModel(Options{}) {}

  /// \throws c10::ValueError beside another one of the same name.
  void on_add(Learner& learn) override;
  void on_remove(Learner& learn) override;
  /// \throws c10::ValueError when there is no value of the monitor's name or it
  ///         is not known which way is better, IoError if the folder cannot be
  ///         written.
  void on_train_begin(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  CallbackRole role() const override { return CallbackRole::watches; }
  int order() const override { return callback_order::kSaveModel; }
  /// Whether the last fit ended by loading the best model.
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
  bool has_saved_ = false;  // the best of this fit, or of all
  int64_t best_epoch_ = 0;  // which that is
  bool has_loaded_ = false;
  bool is_best_unsaved_ = false;  // the epoch that ended last is the best
  bool has_told_write_ = false;   // in this fit
  bool has_told_diverged_ = false;
  std::vector<std::pair<double, int64_t>> best_;  // value and epoch, best first
};

}  // namespace tern
