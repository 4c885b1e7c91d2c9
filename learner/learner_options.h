#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "tern/data/support/sink.h"
#include "tern/learner/callback.h"
#include "tern/learner/loss.h"
#include "tern/learner/metric.h"

namespace tern {

/// Creates an optimizer for the Learner's parameter groups.
/// `tern::optimizer<SGD>(options)` of learner/optim/optimizer_factory.h returns
/// an OptimizerFactory for any optimizer class.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<torch::optim::OptimizerParamGroup>)>;

struct LearnerOptions {
  // ---- Loss, optimizer, metrics and callbacks ----

  /// Default: cross-entropy for kLong targets, mean squared error for others.
  Loss loss = {};
  /// Default: `default_optimizer()`, the fused `optim::AdamW` with fastai's
  /// betas (0.9, 0.99).
  OptimizerFactory optimizer = {};
  /// Computed on the validation data and shown in the table.
  std::vector<Metric> metrics = {};
  Callbacks callbacks = {};

  // ---- Learning rate and weight decay (fastai v1), freezing ----

  double lr = 3e-3;
  double weight_decay = 1e-2;
  /// Apply weight decay directly to the weights, `w *= 1 - lr * wd`, with every
  /// optimizer. If false, the optimizer applies weight decay in its own way
  /// (through the gradient, except AdamW), and the default optimizer is Adam.
  bool true_weight_decay = true;
  /// Also apply weight decay to normalization layers and biases.
  bool bn_weight_decay = true;
  /// Keep training the normalization layers of frozen groups.
  bool train_bn = true;
  /// `unfreeze`, `freeze_to` and `fine_tune` train all parameters of their
  /// groups, as in fastai. If false, parameters that the program has frozen
  /// itself, with `requires_grad_(false)`, stay frozen, unless the whole model
  /// is frozen.
  bool unfreeze_all = false;
  /// `freeze` and `unfreeze` clear the optimizer's state, as in fastai v2.
  bool freeze_clears_optimizer = true;

  // ---- Files, seed and output ----

  /// Base folder for relative paths, including the paths of callbacks.
  std::filesystem::path path = ".";
  std::string model_dir = "models";
  /// If not 0, seeds LibTorch's generators (dropout) when the Learner is
  /// created.
  uint64_t seed = 0;
  /// Receives output and warnings; empty: `terminal()`. A function that takes a
  /// string converts to a Sink: `[](const std::string& line) { log(line); }`.
  Sink sink = {};
  /// Warn about parameters that are not frozen but do not affect the loss of a
  /// fit's first batch.
  bool warn_unused_parameters = true;
  /// End each row of the table with a sparkline of the epoch's losses.
  bool sparkline = false;
};

}  // namespace tern
