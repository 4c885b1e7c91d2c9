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

/// A metric's name and value.
struct MetricValue {
  std::string name;
  double value = std::numeric_limits<double>::quiet_NaN();
};

/// The value of the metric called `name`.
/// \param what    Whose metrics these are, for the message.
/// \throws c10::ValueError that lists the names there are.
double metric_value(
    const std::vector<MetricValue>& metrics,
    const std::string& name,
    const char* what);

/// How many batches make one optimizer step; by default each makes its own.
struct Accumulation {
  int64_t batches = 1;  // a step after this many batches
  int64_t samples =
      0;  // not 0: a step as soon as this many samples are accumulated
};

/// How a fit ended.
enum class FitResult {
  completed,    // all epochs, or a callback had seen enough
  interrupted,  // by request_stop or a signal; a checkpoint can go on
  failed,       // by an exception
  pruned        // by PruneTrial: worse than other trials of a search
};

/// Returns "completed", "interrupted", "failed" or "pruned".
const char* to_string(FitResult result);

/// What the loop and its callbacks know about the step that is being made. The
/// comment of a field says who writes it.
struct TrainState {
  // ---- Where we are; the loop writes ----

  int64_t epoch = 0;        // of this fit, from 0
  int64_t epochs = 0;       // of this fit
  int64_t batch = 0;        // of this epoch, from 0
  int64_t batches = 0;      // of this epoch
  int64_t iteration = 0;    // training batches since the Learner was made
  bool training = false;    // false: validation or prediction
  bool is_fitting = false;  // also while a fit validates

  /// When the loader handed this batch over.
  std::chrono::steady_clock::time_point batch_arrived;

  // ---- This batch; the loop writes, callbacks may replace ----

  /// On the device, transformed. on_batch_begin may replace it.
  Batch batch_data;
  /// What the model answered. on_loss_begin may replace it.
  Tensors outputs;
  /// Computes the loss of this batch in place of the Learner's; unset: plain.
  /// MixUp and CutMix set it in on_batch_begin.
  Loss batch_loss;
  /// What users and logs see: unscaled; detached once backward has run.
  torch::Tensor loss;
  /// What backward() sees. on_backward_begin may replace it: MixedPrecision
  /// multiplies it by the loss scale.
  torch::Tensor loss_grad;

  // ---- What callbacks ask of the loop; reset for each batch or fit ----

  /// Keep the weights this time. The loop sets it, with `skip_zero_grad`, for a
  /// batch whose gradients are only accumulated.
  bool skip_step = false;
  bool skip_zero_grad = false;  // go on adding to the gradients
  bool stop_epoch = false;      // no more batches in this epoch
  bool stop_training = false;   // finish this batch, then end fit
  /// GradientAccumulation writes it in on_train_begin.
  Accumulation accumulation;
  /// The gradients of this batch are only added to those of its step's other
  /// batches; the loop writes it before on_backward_begin, the same on all
  /// ranks.
  bool accumulating = false;
  /// This fit is a trial whose effects are undone (lr_find); callbacks that
  /// watch hear nothing of it. The loop writes it.
  bool is_trial = false;

  // ---- Precision; MixedPrecision and Amp write ----

  /// The type in which the model wants its floating inputs.
  torch::ScalarType input_dtype = torch::kFloat;
  /// What multiplies `loss_grad` during this fit; null: nothing does.
  GradScaler* scaler = nullptr;
  /// What became of the last step.
  StepResult step_result = StepResult::stepped;
  /// 0-dim kFloat on the device: not 0 if the last step was skipped for an
  /// overflow. Defined while `step_result` is unknown.
  torch::Tensor step_overflowed;

  /// Whether this fit ends by an exception; the loop writes it before
  /// on_train_end.
  bool failed = false;
  /// on_train_end comes because this callback is removed, and the fit goes on;
  /// the Learner writes it.
  bool is_removal = false;
  /// How this fit, or the last one, ended; the loop writes it before
  /// on_train_end. While it is `interrupted`, calls that train return at once;
  /// a program that wants to go on all the same sets it to `completed`.
  FitResult result = FitResult::completed;

  // ---- Results; the Recorder and the loop write ----

  /// Exponential average of the training loss (0.98, debiased), as of the last
  /// time it was read from the device. 0-dim kDouble on the CPU.
  torch::Tensor smooth_loss;
  /// Of this epoch's validation; NaN until it is complete. Without validation
  /// data there are no metrics.
  double valid_loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<MetricValue> last_metrics;

  /// `state["accuracy"]`: the metric of the last complete validation of this
  /// epoch. \throws c10::ValueError that lists the names there are.
  double operator[](const std::string& metric) const {
    return metric_value(last_metrics, metric, "state()");
  }
};

}  // namespace tern
