#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/optim/schedulers/lr_scheduler.h>

#include "tern/callbacks/callback_checks.h"
#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// The value of a hyperparameter during training: `schedule(position)`, where
/// position is 0 at the first step and 1 after the last.
using Schedule = std::function<double(double position)>;

/// fastai's SchedNo, SchedLin, SchedCos, SchedExp, SchedPoly and
/// combine_scheds.
namespace schedule {

Schedule constant(double value);
Schedule linear(double start, double end);
/// Half a cosine wave from `start` to `end`: slow, fast, slow.
Schedule cosine(double start, double end);
/// Geometric interpolation.
/// \throws c10::ValueError unless both are > 0.
Schedule exponential(double start, double end);
/// `start + (end - start) * position ^ power`, power > 0.
Schedule polynomial(double start, double end, double power);

/// A part of training and its schedule.
struct Phase {
  double part;  // fraction of training, > 0
  Schedule schedule;
};

/// Runs the phases one after another.
/// \throws c10::ValueError unless the parts are positive and add up to 1.
Schedule phases(std::vector<Phase> phases);

}  // namespace schedule

/// The learning rates with which a schedule began. A checkpoint contains them,
/// because a resumed fit may add a scheduler again, as a callback does in
/// on_epoch_begin, when the learning rates have already changed.
class StartRates {
 public:
  void begin(const Learner& learn, std::vector<double> rates);
  const std::vector<double>& rates() const { return rates_; }

  void save(StateDict& state) const;
  /// Changes nothing if the running fit was called with different learning
  /// rates, or for older checkpoints, which do not contain them.
  /// \param owner  Class for error messages.
  void load(const std::string& owner, const StateDict& state);

 private:
  std::vector<double> rates_;
  std::vector<double> of_fit_;  // passed to the fit, by layer group
};

/// Schedules hyperparameters over a fit; fastai v2's ParamScheduler. Used by
/// `fit_one_cycle`, `flat_cos` and `sgdr`.
///
///   learn.fit(5, 1e-3, {std::make_shared<ParamScheduler>(
///       HyperParameter::lr, schedule::cosine(1e-3, 0))});
///
/// Before each training batch, sets the value at position = batches done /
/// batches of the fit. A step skipped because of an overflow does not count, so
/// a schedule may stop a few steps before its end. (With a fused optimizer on
/// CUDA only the device knows that a step was skipped, so every batch counts.)
class ParamScheduler final : public Callback, public SetsHyperParameter {
 public:
  struct Scheduled {
    HyperParameter hyper;
    /// One per layer group, or one for all.
    std::vector<Schedule> schedules;
    /// For the learning rate: true if the schedule's values are factors of the
    /// fit's learning rates.
    bool is_factor = false;
  };

  /// Creates the schedules for a fit of `batches` batches. Called once with 1
  /// batch, and then at the start of each fit; must return the same
  /// hyperparameters each time.
  using ForBatches = std::function<std::vector<Scheduled>(int64_t batches)>;

  explicit ParamScheduler(std::vector<Scheduled> scheduled);
  explicit ParamScheduler(ForBatches make);
  ParamScheduler(HyperParameter hyper, Schedule schedule)
      : ParamScheduler({{hyper, {std::move(schedule)}}}) {}

  bool sets(HyperParameter hyper) const override;
  /// \throws c10::ValueError if another callback sets the same hyperparameter.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError if the number of schedules does not match the
  ///         layer groups, or if a value is negative, NaN or infinite.
  ///         on_batch_begin throws it too.
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  int order() const override { return callback_order::kScheduler; }

 private:
  void follow_length(Learner& learn);

  ForBatches make_;  // empty: the schedules do not depend on the batches
  std::vector<Scheduled> scheduled_;
  StartRates start_;                  // of this fit, by layer group
  int64_t epochs_ = 0, batches_ = 0;  // of this fit, and of each epoch
  int64_t done_ = 0, total_ = 0;      // batches of this fit
};

/// Runs one of LibTorch's learning rate schedulers:
///
///   learn.fit(30, 0.1, {std::make_shared<TorchScheduler>([](auto& optimizer) {
///     return std::make_unique<torch::optim::StepLR>(optimizer, 10, 0.1);
///   })});
///
/// Creates the scheduler when a fit begins, with the fit's learning rates.
/// Steps it at the end of each epoch, or after each batch whose step was not
/// skipped; the learning rates match Python's scheduler of the same name. A
/// step skipped because of an overflow does not count. (With a fused optimizer
/// on CUDA only the device knows that a step was skipped, so every batch
/// counts.)
class TorchScheduler final : public Callback, public SetsHyperParameter {
 public:
  using Factory = std::function<std::unique_ptr<torch::optim::LRScheduler>(
      torch::optim::Optimizer&)>;
  struct Options {
    /// Steps after each batch; otherwise after each epoch, as is usual in
    /// PyTorch.
    bool per_batch = false;
  };

  explicit TorchScheduler(Factory factory)
      : TorchScheduler(std::move(factory), {}) {}
  TorchScheduler(Factory factory, Options options);

  /// \throws c10::ValueError if another callback sets the learning rate.
  void on_add(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  void on_epoch_end(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  /// Runs after the callbacks that record the step's learning rate.
  int order() const override { return callback_order::kEarlyStopping + 1; }
  OptionValues option_values() const override;

 private:
  void make();
  void advance();
  std::vector<double> rates() const;  // by parameter group
  void set_rates(const std::vector<double>& rates);

  Factory factory_;
  Options options_;
  torch::optim::Optimizer* optimizer_ = nullptr;  // of the running fit
  StartRates start_;                              // by parameter group
  std::unique_ptr<torch::optim::LRScheduler> scheduler_;
  int64_t advances_ = 0;  // of this fit
};

}  // namespace tern
