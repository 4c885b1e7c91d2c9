#pragma once

#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Shortens each epoch to its first batches, in their usual order. Lightning's
/// limit_train_batches, fastai v2's ShortEpoch.
///
///   learn.add<LimitBatches>({.train = 10, .valid = 2}).fit(3);
class LimitBatches : public Callback {
 public:
  struct Options {
    /// Batches an epoch; 0: all.
    int64_t train = 0, valid = 0;
  };

  /// \throws c10::ValueError if a number is below 0.
  explicit LimitBatches(Options options);

  /// \throws c10::ValueError beside another one, or OverfitBatches.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError in the middle of an epoch, as on_add.
  void on_remove(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  int order() const override { return callback_order::kLoaders; }
  OptionValues option_values() const override;

 protected:
  /// \param overfits  As OverfitBatches, on `options.train` batches.
  LimitBatches(Options options, bool overfits)
      : options_(options), overfits_(overfits) {}

 private:
  Options options_;
  bool overfits_;
  std::shared_ptr<DataLoader> train_, valid_;  // the fit's own, while it runs
};

/// Trains and validates on the same few batches in every epoch: a model that
/// cannot learn these by heart has a bug. Lightning's overfit_batches; the
/// samples are drawn at random, once, because data is often sorted by class.
///
///   learn.add<OverfitBatches>(2).fit(50);
class OverfitBatches final : public LimitBatches {
 public:
  /// \throws c10::ValueError if `batches` is below 1.
  explicit OverfitBatches(int64_t batches = 1);
};

/// Ends the fit after some training batches, without validation; fastai v1's,
/// with its default. The stop is set before the last batch, so that
/// GradientAccumulation steps for an incomplete accumulation window.
class StopAfterNBatches final : public Callback {
 public:
  /// \throws c10::ValueError if `batches` is below 1.
  explicit StopAfterNBatches(int64_t batches = 2);

  void on_train_begin(Learner&) override { done_ = 0; }
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  OptionValues option_values() const override;

 private:
  int64_t batches_, done_ = 0;
};

// ---- Trials, for lr_find, plan and their like ----

/// Trains and validates on a few batches, to find mistakes, and undoes it;
/// Lightning's fast_dev_run.
/// \throws c10::ValueError if `batches` is below 1.
void dry_run(Learner& learn, int64_t batches = 1);

/// Trains on so many batches, over as many epochs as that takes, without
/// validation; callbacks that watch get no events.
/// \param extra  Take part in this fit only.
void fit_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra = {});

/// \throws c10::Error if a stop was requested while `fit_batches` ran.
void check_not_stopped(Learner& learn);

/// As `fit_batches`; returns the most bytes of tensors that were alive at once,
/// beyond those that were alive before.
int64_t peak_bytes_of_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra = {});

}  // namespace tern
