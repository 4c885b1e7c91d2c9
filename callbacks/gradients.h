#pragma once

#include <optional>

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

/// Makes one optimizer step for several batches, as if they were one large
/// batch: for batch sizes that do not fit into memory.
///
///   learn.add<GradientAccumulation>({.batches = 4}).fit(3);
///
/// The loss has to be a mean over the batch; each sample of an accumulation
/// window then has the same weight, also when the last batch is shorter, on one
/// rank or on many. The last window of an epoch is stepped however small it is.
/// `request_stop` ends the fit once the window is complete. A `stop_epoch` or
/// `stop_training` set in on_batch_begin, as StopAfterNBatches does, completes
/// the window with that batch; one set later drops the gradients accumulated so
/// far. The loss scale changes at steps only; one overflow in a window skips
/// its step. (fastai v2 counts samples, carries the rest over and drops it at
/// the end; Lightning counts batches and steps a small rest with too small a
/// gradient.)
class GradientAccumulation final : public Callback {
 public:
  /// Exactly one of the two.
  struct Options {
    int64_t batches = 0;  // a step every so many batches
    int64_t samples = 0;  // a step once a rank has so many samples
  };

  /// \throws c10::ValueError unless exactly one option is >= 1.
  explicit GradientAccumulation(Options options);

  /// \throws c10::ValueError beside another one.
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
/// The way to clip with a Learner: with to_amp, in fp32, by value, or when the
/// norm is of interest. `to_fp16({.clip = 1.0})` clips by norm with one pass
/// over the gradients less; set one of the two. A loop of your own calls
/// `clip_grad_norm_`. Never synchronizes with the host. Default and name are
/// fastai v2's.
class GradientClip final : public Callback {
 public:
  struct Options {
    /// Largest joint L2 norm over all parameters; > 0.
    double max_norm = 1.0;
    /// Set: clamps every element to [-max_value, max_value] instead.
    std::optional<double> max_value = {};
  };

  /// \throws c10::ValueError if a limit is not > 0.
  explicit GradientClip(double max_norm = 1.0);
  explicit GradientClip(Options options);

  void on_step(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kGradientClip; }

  /// The joint norm before the last clipping by norm: 0-dim on the device,
  /// kFloat (kDouble for such gradients), undefined before the first. The next
  /// step overwrites it.
  const torch::Tensor& norm() const { return norm_; }
  OptionValues option_values() const override;

 private:
  Options options_;
  torch::Tensor norm_;
};

/// Adds the L2 norm of the loss's gradient, over all parameters, to the loss
/// that backward gets: PyTorch's gradient penalty, with or without a loss
/// scale. Costs a second, differentiable backward pass.
///
///   learn.add<GradientPenalty>(0.1).fit(3);
///
/// The table and the Recorder show the loss without the penalty.
class GradientPenalty final : public Callback {
 public:
  /// \param weight  Factor of the norm, finite.
  explicit GradientPenalty(double weight = 1.0);

  void on_backward_begin(Learner& learn) override;
  bool can_be_replayed() const override { return true; }
  int order() const override { return callback_order::kGradientPenalty; }
  OptionValues option_values() const override;

 private:
  double weight_;
};

}  // namespace tern
