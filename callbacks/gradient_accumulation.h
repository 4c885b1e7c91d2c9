#pragma once

#include "tern/learner/callback.h"

namespace tern {

/// Steps once for several batches, as if they were one large batch: for batch
/// sizes that do not fit into memory.
///
///   learn.add<GradientAccumulation>({.batches = 4}).fit(3);
///
/// The loss has to be a mean over the batch; each sample of an accumulation
/// window then weighs the same, also when the last batch is shorter, on one
/// rank or on many. An epoch's last window is stepped however small it is, and
/// nothing is carried into the next epoch. `request_stop` ends the fit once the
/// window is complete. A `stop_epoch` or `stop_training` that is set in
/// on_batch_begin, as StopAfterNBatches does, completes the window with that
/// batch; one that comes later drops what the open window has accumulated.
/// While gradients are accumulated the loss scale stays as it is; one overflow
/// in a window skips its one step.
/// (fastai v2 counts samples, carries the rest over and drops it at the end;
/// Lightning counts batches and steps a small rest with too small a gradient.)
class GradientAccumulation final : public Callback {
 public:
  /// Exactly one of the two.
  struct Options {
    int64_t batches = 0;  // a step each so many batches
    int64_t samples = 0;  // a step once so many samples of a rank are in
  };

  /// \throws c10::ValueError unless exactly one option is >= 1.
  explicit GradientAccumulation(Options options);

  /// \throws c10::ValueError beside another one.
  void on_add(Learner& learn) override;
  void on_train_begin(Learner& learn) override;

 private:
  Options options_;
};

}  // namespace tern
