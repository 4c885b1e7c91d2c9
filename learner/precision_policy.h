#pragma once

#include <string>

#include <c10/util/FunctionRef.h>
#include <torch/types.h>

#include "tern/learner/callback.h"
#include "tern/learner/step_result.h"

namespace tern {

/// A callback that also determines how the forward pass and the optimizer's
/// step are computed: MixedPrecision (callbacks/precision/mixed_precision.h). A
/// Learner has at most one. Without it, both run in plain fp32.
///
/// Most of mixed precision needs only the events of a callback: it replaces
/// inputs, outputs and the loss in on_batch_begin, on_loss_begin and
/// on_backward_begin. Three things cannot be done in events, so the loop calls
/// this interface for them:
///
/// 1. `forward` encloses the forward pass and the loss, because autocast and
///    KeepFp32Guard are scopes, and a scope cannot span two events.
/// 2. `step` replaces `optimizer.step()`, because the optimizer decides on the
///    device, without a transfer to the host, whether to skip a step that
///    overflowed.
/// 3. `unscale` and `abandon`, because gradients are multiplied by the loss
///    scale from backward to the step. While callbacks run, the loop detaches
///    scaled gradients from the parameters. `Learner::gradients` calls
///    `unscale` for the first callback that reads them, so there is no cost if
///    no callback reads them. If a callback skips the step, the loop calls
///    `abandon`.
///
/// The remaining functions describe the precision, for the Recorder, reports
/// and checks.
class PrecisionPolicy : public Callback {
 public:
  /// Calls `compute`, the forward pass and the loss, in this precision.
  virtual void forward(Learner& learn, c10::function_ref<void()> compute) = 0;

  /// Sets the gradients of the tensors that the optimizer updates to fp32
  /// gradients without the loss scale. A second call before the step does
  /// nothing.
  virtual void unscale(Learner& learn) = 0;

  /// Called if the optimizer does not step for this batch; discards the state
  /// that `unscale` recorded for it.
  /// \param keeps_gradients  The next batch adds to the gradients, so unscaled
  ///                         gradients are multiplied by the loss scale again.
  virtual void abandon(Learner& learn, bool keeps_gradients) = 0;

  /// Runs the optimizer's step, or skips it if a gradient overflowed.
  virtual StepResult step(Learner& learn) = 0;

  /// Returns the loss scale; NaN if there is none. May synchronize with the
  /// device.
  virtual double loss_scale() const = 0;

  /// Returns the loss scale and the number of consecutive skipped steps, [2]
  /// kFloat on the device; undefined before the first backward pass and without
  /// a loss scale. Never synchronizes.
  virtual torch::Tensor loss_scale_record() const = 0;

  /// Throws if a model in this precision cannot run on several devices.
  virtual void check_parallel() const {}

  /// Returns a description of the precision for messages and reports: "fp16
  /// model, fp32 master weights".
  virtual std::string precision_text() const = 0;
};

}  // namespace tern
