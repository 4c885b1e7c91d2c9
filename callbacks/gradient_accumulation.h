#pragma once

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

/// Steps once for several batches, as if they were one large batch: for batch
/// sizes that do not fit into memory.
///
///   learn.add<GradientAccumulation>({.batches = 4}).fit(3);
///
/// The loss has to be a mean over the batch; each sample of a group then weighs
/// the same, also when the last batch is shorter. An epoch's last group is
/// stepped however small it is, weighed by the samples that it has, and nothing
/// is carried into the next epoch. The group in which the fit stops is
/// stepped too if the stop is set before backward, as StopAfterNBatches does. A
/// stop that comes later (request_stop, TerminateOnNaN, a callback's
/// on_batch_end) drops what is gathered; a checkpoint that request_stop writes
/// holds it, and a resumed fit completes the group. While a group is gathered
/// the loss scale stays as it is; one overflow in it skips the one step.
/// (fastai v2 counts samples, carries the rest over and drops it at the end;
/// Lightning counts batches and steps a small rest with too small a gradient.)
class GradientAccumulation final : public Callback {
 public:
  /// Exactly one of the two.
  struct Options {
    int64_t batches = 0;  // a step each so many batches
    int64_t samples = 0;  // a step as soon as so many samples are gathered
  };

  /// \throws c10::ValueError unless exactly one option is >= 1.
  explicit GradientAccumulation(Options options);

  /// \throws c10::ValueError beside another one.
  void on_add(const Learner& learn) override;
  void on_epoch_begin(Learner& learn) override;
  void on_backward_begin(Learner& learn) override;
  void on_backward_end(Learner& learn) override;
  StateDict state_dict() const override;
  void load_state_dict(const StateDict& state) override;
  int order() const override { return callback_order::kGradientAccumulation; }

 private:
  Options options_;
  bool is_complete_ = true;  // this batch is the last of its group
  int64_t full_ = 0;  // samples of a whole group, which the loss is divided by
  int64_t gathered_ = 0;  // samples of this group so far
  int64_t batches_ = 0;   // batches of this group so far
};

}  // namespace tern
