#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tern/callbacks/diagnose/profiler.h"
#include "tern/learner/hyper_parameter.h"

namespace tern {

/// Options of `Learner::plan`.
struct TrainingPlanOptions {
  /// The arguments that will be passed to `fit`.
  int64_t epochs = 1;
  LearningRates lr = {};
  /// Batches to measure, after two warm-up batches; >= 1.
  int64_t batches = 8;
};

/// What a fit will do and cost, measured by `Learner::plan`.
struct TrainingPlan {
  /// A layer group.
  struct Group {
    int64_t parameters = 0, trainable = 0;
    double lr = 0, weight_decay = 0;
    int64_t without_decay = 0;  // parameters without weight decay
  };

  std::string device, precision, optimizer;
  std::vector<Group> groups;
  int64_t epochs = 0, samples = 0, batch_size = 0, batches = 0, workers = 0;
  std::vector<std::string>
      loop;  // each event with the callbacks that act there

  // ---- Measured; milliseconds per batch ----

  /// Indexed by Phase; without validation.
  std::array<double, kPhases> milliseconds{};
  double step_milliseconds = 0;    // all phases together
  double loader_milliseconds = 0;  // of the loader alone
  double seconds() const;          // for all epochs; no validation

  // ---- Bytes ----

  int64_t weight_bytes = 0;  // parameters, buffers, fp32 master weights
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;  // moments and other optimizer state
  /// Peak memory of a step beyond weights and optimizer state.
  int64_t step_bytes = 0;
  int64_t bytes() const { return weight_bytes + optimizer_bytes + step_bytes; }

  /// Likely mistakes, and suggestions to make training faster.
  std::vector<std::string> problems, advice;

  std::string to_string() const;
};

}  // namespace tern
