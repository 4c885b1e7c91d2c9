#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

/// Accumulates the gradients of several batches and runs one optimizer step, as
/// if they were one large batch. For batch sizes that do not fit into memory.
///
///   learn.add<GradientAccumulation>({.batches = 4}).fit(3);
///
/// The loss must be a mean over the batch. Each sample of an accumulation
/// window then has the same weight, even if the last batch is shorter, on one
/// rank or several. The last window of an epoch always ends with a step, even
/// if it is incomplete. `request_stop` ends the fit once the window is
/// complete. If `stop_epoch` or `stop_training` is set in on_batch_begin, as
/// StopAfterNBatches does, that batch completes the window; if it is set later,
/// the gradients accumulated so far are dropped. The loss scale changes only at
/// steps; one overflow in a window skips its step. (fastai v2 counts samples,
/// carries the remainder over to the next window and drops it at the end.
/// Lightning counts batches, and its step for an incomplete window uses
/// gradients that are too small.)
class GradientAccumulation final : public Callback {
 public:
  /// Exactly one option must be set.
  struct Options {
    int64_t batches = 0;  // batches per step
    int64_t samples = 0;  // steps once a rank has this many samples
  };

  /// \throws c10::ValueError unless exactly one option is >= 1.
  explicit GradientAccumulation(Options options);

  /// \throws c10::ValueError if the Learner already has a GradientAccumulation.
  void on_add(Learner& learn) override;
  void on_train_begin(Learner& learn) override;
  void on_train_end(Learner& learn) override;
  OptionValues option_values() const override;

 private:
  Options options_;
};

/// Clips the unscaled gradients before each step, in every precision.
///
///   learn.add<GradientClip>(0.1).fit(3);                // joint L2 norm
///   learn.add<GradientClip>({.max_value = 0.5}).fit(3); // each element
///
/// Use this to clip with to_amp or in fp32, to clip by value, or to read the
/// norm. `to_fp16({.clip = 1.0})` clips by norm too and saves a pass over the
/// gradients. Do not use both. A custom training loop calls `clip_grad_norm_`
/// instead. Never synchronizes with the device. The default and the name are
/// fastai v2's.
class GradientClip final : public Callback {
 public:
  struct Options {
    /// Largest joint L2 norm over all parameters; > 0.
    double max_norm = 1.0;
    /// If set, clamps every element to [-max_value, max_value] instead.
    std::optional<double> max_value = {};
  };

  /// \throws c10::ValueError if a limit is not > 0.
  explicit GradientClip(double max_norm = 1.0);
  explicit GradientClip(Options options);

  void on_step(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kGradientClip; }

  /// Joint norm before the last clipping by norm: 0-dim on the device, kFloat
  /// (kDouble for kDouble gradients); undefined before the first one. The next
  /// step overwrites it.
  const torch::Tensor& norm() const { return norm_; }
  OptionValues option_values() const override;

 private:
  Options options_;
  torch::Tensor norm_;
};

/// Adds the L2 norm of the loss's gradient, over all parameters, to the loss
/// passed to backward: the gradient penalty of PyTorch's AMP examples, with or
/// without a loss scale. Costs a second, differentiable backward pass.
///
///   learn.add<GradientPenalty>(0.1).fit(3);
///
/// The progress table and the Recorder show the loss without the penalty.
class GradientPenalty final : public Callback {
 public:
  /// \param weight  Factor of the norm; finite.
  explicit GradientPenalty(double weight = 1.0);

  void on_backward_begin(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kGradientPenalty; }
  OptionValues option_values() const override;

 private:
  double weight_;
};

}  // namespace tern
