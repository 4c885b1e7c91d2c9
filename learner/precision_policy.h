#pragma once

#include <string>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/learner/callback.h"
#include "tern/learner/step_result.h"

namespace tern {

/// A callback that also decides how the forward pass and the optimizer's step
/// are computed: MixedPrecision (callbacks/precision/mixed_precision.h). A
/// Learner has at most one; without it both are plain fp32.
///
/// Most of mixed precision needs only the events of a callback: inputs, outputs
/// and the loss are replaced in on_batch_begin, on_loss_begin and
/// on_backward_begin. Three things cannot be done there, and are what the loop
/// asks of this interface:
///
/// 1. `forward` surrounds the forward pass and the loss, because autocast and
///    KeepFp32Guard are scopes. An event only begins or ends something.
/// 2. `step` replaces `optimizer.step()`, because whether a step is skipped for
///    an overflow is decided inside it, on the device, without reading the flag.
/// 3. `unscale` and `abandon`, because gradients carry the loss scale from
///    backward to the step. While callbacks run, the loop keeps scaled
///    gradients away from the parameters; `Learner::gradients` calls `unscale`
///    for the first callback that reads them, and nobody pays for it otherwise.
///    A step that a callback skips is told with `abandon`.
///
/// The remaining functions say what the precision is, for the Recorder, reports
/// and checks.
class PrecisionPolicy : public Callback {
 public:
  /// Calls `compute`, the forward pass and the loss, in this precision.
  virtual void forward(Learner& learn, c10::function_ref<void()> compute) = 0;

  /// Gives the tensors that the optimizer steps fp32 gradients without the loss
  /// scale. A second call before the step does nothing.
  virtual void unscale(Learner& learn) = 0;

  /// The optimizer does not step for this batch: forgets what `unscale` noted.
  /// \param keeps_gradients  The next batch adds to them, so unscaled gradients
  ///                         are multiplied by the loss scale again.
  virtual void abandon(Learner& learn, bool keeps_gradients) = 0;

  /// Makes the optimizer's step, or skips it if a gradient overflowed.
  virtual StepResult step(Learner& learn) = 0;

  /// Returns what multiplies the loss; NaN if nothing does. May synchronize
  /// with the device.
  virtual double loss_scale() const = 0;

  /// Returns the loss scale and the number of steps skipped in a row, [2] kFloat
  /// on the device; undefined before the first backward and without a loss
  /// scale. Never synchronizes.
  virtual torch::Tensor loss_scale_record() const = 0;

  /// Throws if a model in this precision cannot compute on several devices.
  virtual void check_parallel() const {}

  /// Returns the precision in words for messages and reports: "fp16 model, fp32
  /// masters".
  virtual std::string precision_text() const = 0;
};

}  // namespace tern
