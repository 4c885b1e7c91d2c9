#pragma once

#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Shortens each epoch to its first batches, in their usual order. Like
/// Lightning's limit_train_batches and fastai v2's ShortEpoch.
///
///   learn.add<LimitBatches>({.train = 10, .valid = 2}).fit(3);
class LimitBatches : public Callback {
 public:
  struct Options {
    /// Batches per epoch; 0: all.
    int64_t train = 0, valid = 0;
  };

  /// \throws c10::ValueError if a number is below 0.
  explicit LimitBatches(Options options);

  /// \throws c10::ValueError if the Learner already has a LimitBatches or an
  ///         OverfitBatches, or during an epoch.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError during an epoch.
  void on_remove(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  int order() const override { return callback_order::kLoaders; }
  OptionValues option_values() const override;

 protected:
  /// \param overfits  True for OverfitBatches: trains and validates on the same
  ///                  `options.train` batches in every epoch.
  LimitBatches(Options options, bool overfits)
      : options_(options), overfits_(overfits) {}

 private:
  Options options_;
  bool overfits_;
  std::shared_ptr<DataLoader> train_, valid_;  // the fit's loaders
};

/// Trains and validates on the same few batches in every epoch. A model that
/// cannot memorize them has a bug. Like Lightning's overfit_batches, except
/// that the samples are drawn at random, once, because data is often sorted by
/// class. Fits on a stream that cannot restart throw c10::ValueError.
///
///   learn.add<OverfitBatches>(2).fit(50);
class OverfitBatches final : public LimitBatches {
 public:
  /// \throws c10::ValueError if `batches` is below 1.
  explicit OverfitBatches(int64_t batches = 1);
};

/// Ends the fit after `batches` training batches, without validation. Name and
/// default are fastai v1's. Requests the stop before the last batch, so that
/// GradientAccumulation steps even for an incomplete window.
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

// ---- Dry runs, for lr_find, plan and similar functions ----

/// Trains and validates on `batches` batches to find mistakes, then restores
/// the previous state. Like Lightning's fast_dev_run.
/// \throws c10::ValueError if `batches` is below 1.
void dry_run(Learner& learn, int64_t batches = 1);

/// Trains on `batches` batches, over as many epochs as needed, without
/// validation. Callbacks of CallbackRole::watches receive no events.
/// \param extra  Callbacks for this fit only.
void fit_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra = {});

/// \throws c10::Error if a stop was requested while `fit_batches` ran.
void check_not_stopped(Learner& learn);

/// Calls `fit_batches` and returns the peak tensor memory in bytes, beyond the
/// memory that was allocated before.
int64_t peak_bytes_of_batches(
    Learner& learn,
    int64_t batches,
    const LearningRates& lr,
    Callbacks extra = {});

}  // namespace tern
