#pragma once

#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/learner/grad_scaler.h"

namespace tern {

/// A metric's name and value.
struct MetricValue {
  std::string name;
  double value = std::numeric_limits<double>::quiet_NaN();
};

/// How a fit ended.
enum class FitResult {
  completed,    // all epochs, or a callback had seen enough
  interrupted,  // by request_stop or a signal; a checkpoint can go on
  failed        // by an exception
};

/// What the loop and its callbacks know about the step that is being made. The
/// comment of a field says who writes it.
struct TrainState {
  // ---- Where we are; the loop writes ----

  int64_t epoch = 0;      // of this fit, from 0
  int64_t epochs = 0;     // of this fit
  int64_t batch = 0;      // of this epoch, from 0
  int64_t batches = 0;    // of this epoch
  int64_t iteration = 0;  // training batches since the Learner was made
  bool training = false;  // false: validation or prediction

  /// When the loader handed this batch over.
  std::chrono::steady_clock::time_point batch_arrived;

  // ---- This batch; the loop writes, callbacks may replace ----

  /// On the device, transformed. on_batch_begin may replace it.
  Batch batch_data;
  /// What the model answered. on_loss_begin may replace it.
  Tensors outputs;
  /// Computes the loss of this batch in place of the Learner's Loss; empty:
  /// plain. MixUp and CutMix set it in on_batch_begin.
  std::function<torch::Tensor()> loss_maker;
  /// What users and logs see: unscaled; detached once backward has run.
  torch::Tensor loss;
  /// What backward() sees. on_backward_begin may replace it: MixedPrecision
  /// multiplies it by the loss scale.
  torch::Tensor loss_grad;

  // ---- What callbacks ask of the loop; reset for each batch or fit ----

  bool skip_step = false;       // keep the weights this time
  bool skip_zero_grad = false;  // go on adding to the gradients
  bool stop_epoch = false;      // no more batches in this epoch
  bool stop_training = false;   // finish this batch, then end fit
  /// This fit is an experiment whose effects are undone (lr_find): callbacks
  /// that judge, log or save stay quiet, and there is no validation.
  bool is_trial = false;

  /// Called when request_stop ends the fit, with the step complete and the
  /// epoch not; SaveCheckpoint writes. Empty: nothing happens.
  std::function<void()> on_interrupt;

  /// Called with what ends the fit; may throw something that says more.
  std::function<void(const std::exception&)> on_error;

  // ---- Precision; MixedPrecision and Amp write ----

  /// The type in which the model wants its floating inputs.
  torch::ScalarType input_dtype = torch::kFloat;
  /// The 16-bit type that forward and loss compute in under autocast; unset:
  /// autocast is off.
  std::optional<torch::ScalarType> autocast_dtype;
  /// What multiplies `loss_grad` during this fit; null: nothing does.
  GradScaler* scaler = nullptr;
  /// From on_backward_end to on_step: gives the optimizer's parameters their
  /// true gradients, in fp32. Empty: they have them. While `skip_step` is set,
  /// as by GradientAccumulation in all batches of a group but the last, it
  /// leaves them as they are, with a warning.
  std::function<void()> unscale_gradients;
  /// Makes the optimizer step in place of `optimizer.step()`; empty: plain.
  std::function<StepResult(torch::optim::Optimizer&)> stepper;
  /// What became of the last step.
  StepResult step_result = StepResult::stepped;

  /// Whether this fit ends by an exception; the loop writes it before
  /// on_train_end.
  bool failed = false;
  /// How this fit, or the last one, ended; the loop writes it before
  /// on_train_end.
  FitResult result = FitResult::completed;

  // ---- Results; the Recorder and the loop write ----

  /// Exponential average of the training loss (0.98, debiased), as of the last
  /// time it was read from the device. 0-dim kDouble on the CPU.
  torch::Tensor smooth_loss;
  /// Of this epoch's validation; NaN and empty until it is complete.
  double valid_loss = std::numeric_limits<double>::quiet_NaN();
  std::vector<MetricValue> last_metrics;
};

}  // namespace tern
