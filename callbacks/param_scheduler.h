#pragma once

#include <functional>
#include <vector>

#include "tern/callbacks/schedule.h"
#include "tern/callbacks/sets_learning_rate.h"
#include "tern/learner/callback.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Moves hyper-parameters over a fit. `fit_one_cycle` and its like are this
/// with the right schedules; fastai v2's ParamScheduler.
///
///   learn.fit(5, 1e-3, {std::make_shared<ParamScheduler>(
///       HyperParameter::lr, schedule::cosine(1e-3, 0))});
///
/// The value is set before each training batch, from the share of the fit's
/// batches that is done. A step that was skipped for an overflow does not
/// count, so a schedule may end a few steps short of its end. (On CUDA with a
/// fused optimizer only the device knows of the skip, and every batch counts.)
class ParamScheduler final : public Callback, public SetsLearningRate {
 public:
  struct Scheduled {
    HyperParameter hyper;
    /// One for each layer group, or one for all.
    std::vector<Schedule> schedules;
  };

  /// What to move, for a fit of so many batches. Called once for one batch, and
  /// at the start of each fit; always for the same hyper-parameters.
  using ForBatches = std::function<std::vector<Scheduled>(int64_t batches)>;

  explicit ParamScheduler(std::vector<Scheduled> scheduled);
  explicit ParamScheduler(ForBatches make);
  ParamScheduler(HyperParameter hyper, Schedule schedule)
      : ParamScheduler({{hyper, {std::move(schedule)}}}) {}

  bool moves(HyperParameter hyper) const;
  bool sets_learning_rate() const override { return moves(HyperParameter::lr); }

  /// \throws c10::ValueError if another scheduler moves the same
  ///         hyper-parameter, or another callback sets the learning rate too.
  void on_add(Learner& learn) override;
  /// \throws c10::ValueError if the number of schedules does not fit the layer
  ///         groups, or for a value that is below 0 or not finite. So does
  ///         on_batch_begin.
  void on_train_begin(Learner& learn) override;
  void on_batch_begin(Learner& learn) override;
  void on_batch_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  int order() const override { return callback_order::kScheduler; }

 private:
  ForBatches make_;  // empty: the batches do not matter
  std::vector<Scheduled> scheduled_;
  int64_t done_ = 0, total_ = 0;  // batches of this fit
};

}  // namespace tern
