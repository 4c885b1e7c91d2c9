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

/// Creates an optimizer over the parameter groups that the Learner has laid
/// out; `tern::optimizer<SGD>(options)` of learner/optim/optimizer_factory.h
/// makes one for any optimizer class.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(
    std::vector<torch::optim::OptimizerParamGroup>)>;

struct LearnerOptions {
  // ---- What is learnt ----

  /// Unset: cross-entropy for kLong targets, mean squared error for others.
  Loss loss = {};
  /// Unset: `default_optimizer()`, the fused `optim::AdamW` with fastai's betas
  /// (0.9, 0.99).
  OptimizerFactory optimizer = {};
  /// Shown in the table, computed on the validation data.
  std::vector<Metric> metrics = {};
  Callbacks callbacks = {};

  // ---- How fast, how much decay; fastai v1's defaults ----

  double lr = 3e-3;
  double weight_decay = 1e-2;
  /// Decay weights directly (`w *= 1 - lr * wd`) with every optimizer. false:
  /// the optimizer's own way, which is through the gradient for all but AdamW;
  /// the default optimizer is Adam then.
  bool true_weight_decay = true;
  /// Decay normalization layers and biases too.
  bool bn_weight_decay = true;
  /// Normalization layers of frozen groups go on learning.
  bool train_bn = true;
  /// `unfreeze`, `freeze_to` and `fine_tune` train all parameters of their
  /// groups, as fastai's. false: those that the program has frozen itself, with
  /// `requires_grad_(false)`, stay frozen, unless that is the whole model.
  bool unfreeze_all = false;
  /// freeze and unfreeze clear the optimizer's state, as fastai v2's.
  bool freeze_clears_optimizer = true;

  // ---- Where things go ----

  /// Relative names of files and folders, of callbacks too, are within it.
  std::filesystem::path path = ".";
  std::string model_dir = "models";
  /// Not 0: seeds LibTorch's generators (dropout) when the Learner is made.
  uint64_t seed = 0;
  /// Receives output and warnings; empty: `terminal()`. A function of a string
  /// is one: `[](const std::string& line) { log(line); }`.
  Sink sink = {};
  /// Warn of parameters that the loss of a fit's first batch does not depend
  /// on, and that are not frozen.
  bool warn_unused_parameters = true;
  /// End each row of the table with the epoch's losses as a line of blocks.
  bool sparkline = false;
};

}  // namespace tern
