#pragma once

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/loss.h"
#include "tern/learner/step_result.h"

namespace tern {

class GradScaler;  // learner/amp/grad_scaler.h

struct MetricValue {
  std::string name;
  double value = std::numeric_limits<double>::quiet_NaN();
};

/// Returns the value of the metric called `name`.
/// \param what  The source of the metrics, for the error message.
/// \throws c10::ValueError listing the existing names.
double metric_value(
    const std::vector<MetricValue>& metrics,
    const std::string& name,
    const char* what);

/// The size of an accumulation window. By default the optimizer steps after
/// every batch.
struct Accumulation {
  /// Batches per optimizer step; 0: `samples` applies.
  int64_t batches = 1;
  /// The optimizer steps as soon as this many samples per rank are accumulated;
  /// 0: `batches` applies.
  int64_t samples = 0;
};

/// How a fit ended.
enum class FitResult {
  completed,    // all epochs done, or a callback stopped the fit
  interrupted,  // by request_stop or a signal; can be resumed
  failed,       // by an exception
  pruned        // by PruneTrial: worse than other trials of a search
};

/// Returns "completed", "interrupted", "failed" or "pruned".
const char* to_string(FitResult result);

/// State shared by the loop and its callbacks. The section headings and the
/// comments on the fields say which part of Tern writes each field.
struct TrainState {
  // ---- Position; written by the loop ----

  int64_t epoch = 0;        // of this fit, from 0
  int64_t epochs = 0;       // of this fit
  int64_t batch = 0;        // of this epoch, from 0
  int64_t batches = 0;      // of this epoch
  int64_t iteration = 0;    // training batches since the Learner was created
  bool training = false;    // false: validation or prediction
  bool is_fitting = false;  // also during the validation of a fit

  /// The time at which the loader returned this batch.
  std::chrono::steady_clock::time_point batch_arrived;

  // ---- This batch; written by the loop, callbacks may replace it ----

  /// On the device and transformed. on_batch_begin may replace it.
  Batch batch_data;
  /// The model's outputs. on_loss_begin may replace them.
  Tensors outputs;
  /// Replaces the Learner's loss for this batch; empty: the Learner's loss is
  /// used. MixUp and CutMix set it in on_batch_begin.
  Loss batch_loss;
  /// The loss to show and log: unscaled, and detached after the backward pass.
  torch::Tensor loss;
  /// The loss on which backward() is called. on_backward_begin may replace it:
  /// MixedPrecision multiplies it by the loss scale.
  torch::Tensor loss_grad;

  // ---- Requests of callbacks to the loop; reset for each batch or fit ----

  /// Skip the optimizer's step for this batch. The loop sets this, together
  /// with `skip_zero_grad`, for a batch that only accumulates gradients.
  bool skip_step = false;
  /// Keep the gradients, so that the next batch adds to them.
  bool skip_zero_grad = false;
  bool stop_epoch = false;     // end the epoch after this batch
  bool stop_training = false;  // end the fit after this batch
  /// Written by GradientAccumulation in on_train_begin.
  Accumulation accumulation;
  /// True if this batch only accumulates gradients and does not complete its
  /// accumulation window. The loop writes it before on_backward_begin, with the
  /// same value on all ranks.
  bool accumulating = false;
  /// True if this fit is a dry run, whose effects are undone, as in lr_find.
  /// Callbacks that only observe then receive no events. Written by the loop.
  bool is_dry_run = false;

  // ---- Precision; written by MixedPrecision and Amp ----

  /// The dtype to which floating-point inputs of the model are converted.
  torch::ScalarType input_dtype = torch::kFloat;
  /// Multiplies `loss_grad` during this fit; null: no loss scale.
  GradScaler* scaler = nullptr;
  /// Outcome of the last optimizer step.
  StepResult step_result = StepResult::stepped;
  /// 0-dim kFloat on the device: nonzero if the last step was skipped because
  /// of an overflow. Defined only while `step_result` is unknown.
  torch::Tensor step_overflowed;

  /// True if this fit ends with an exception. The loop writes it before
  /// on_train_end.
  bool failed = false;
  /// True if on_train_end is called because this callback is being removed
  /// while the fit continues. Written by the Learner.
  bool is_removal = false;
  /// How this fit, or the last one, ended. The loop writes it before
  /// on_train_end. While it is `interrupted`, calls that train return at once;
  /// to train anyway, set it to `completed`.
  FitResult result = FitResult::completed;

  // ---- Results; written by the Recorder and the loop ----

  /// Exponential moving average of the training loss (beta 0.98, debiased), up
  /// to the last transfer from the device. 0-dim kDouble on the CPU.
  torch::Tensor smooth_loss;
  /// Validation loss of this epoch; NaN until its validation is complete.
  /// Without validation data there are no metrics.
  double valid_loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<MetricValue> last_metrics;

  /// `state["accuracy"]`: a metric of this epoch's last complete validation.
  /// \throws c10::ValueError listing the existing names.
  double operator[](const std::string& metric) const {
    return metric_value(last_metrics, metric, "state()");
  }
};

}  // namespace tern
