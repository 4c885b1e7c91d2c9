#pragma once

#include <memory>

#include "tern/data/data_bunch.h"
#include "tern/learner/callback.h"

namespace tern {

/// Base of callbacks that train on other loaders for the time of a fit.
class SwapLoaders : public Callback {
 public:
  /// \throws c10::ValueError beside another one.
  void on_add(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  int order() const override { return callback_order::kLoaders; }

 private:
  /// Changes `data().train` and `data().valid`, which may be null.
  virtual void swap(Learner& learn) const = 0;

  std::shared_ptr<DataLoader> train_, valid_;  // of before, while a fit runs
  bool has_swapped_ = false;
};

/// Makes each epoch short: its first batches only, in the order that it has
/// anyway. Lightning's limit_train_batches, fastai v2's ShortEpoch.
///
///   learn.add<LimitBatches>({.train = 10, .valid = 2}).fit(3);
class LimitBatches final : public SwapLoaders {
 public:
  struct Options {
    /// Batches an epoch; 0: all.
    int64_t train = 0, valid = 0;
  };

  /// \throws c10::ValueError if a number is below 0.
  explicit LimitBatches(Options options);

 private:
  void swap(Learner& learn) const override;

  Options options_;
};

/// Trains and validates on the same few batches, in every epoch: a model that
/// cannot learn these by heart has an error. Lightning's overfit_batches; the
/// samples are drawn at random, once, for data is often sorted by class.
///
///   learn.add<OverfitBatches>(2).fit(50);
class OverfitBatches final : public SwapLoaders {
 public:
  /// \throws c10::ValueError if `batches` is below 1.
  explicit OverfitBatches(int64_t batches = 1);

 private:
  void swap(Learner& learn) const override;

  int64_t batches_;
};

/// Ends the fit after some training batches, without validation; fastai v1's,
/// with its default. The last batch knows that it is the last, so that
/// GradientAccumulation steps for a group that is not full.
class StopAfterNBatches final : public Callback {
 public:
  /// \throws c10::ValueError if `batches` is below 1.
  explicit StopAfterNBatches(int64_t batches = 2);

  void on_train_begin(Learner&) override { done_ = 0; }
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;

 private:
  int64_t batches_, done_ = 0;
};

/// A loader of the first batches of each epoch of `loader`.
std::shared_ptr<DataLoader> first_batches(
    const DataLoader& loader,
    int64_t batches);

}  // namespace tern
