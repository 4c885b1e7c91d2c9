#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tern/callbacks/profiler.h"
#include "tern/learner/learning_rates.h"

namespace tern {

/// Options of `Learner::plan`.
struct TrainingPlanOptions {
  /// As they will be given to `fit`.
  int64_t epochs = 1;
  LearningRates lr = {};
  /// Batches to measure, after two to warm up; at least 1.
  int64_t batches = 8;
};

/// What `Learner::plan` found out.
struct TrainingPlan {
  /// A layer group.
  struct Group {
    int64_t parameters = 0, trainable = 0;
    double lr = 0, weight_decay = 0;
    int64_t without_decay = 0;  // parameters that decay spares
  };

  std::string device, precision, optimizer;
  std::vector<Group> groups;
  int64_t epochs = 0, samples = 0, batch_size = 0, batches = 0, workers = 0;
  std::vector<std::string> loop;  // each event with who acts there

  // ---- Measured; milliseconds a batch ----

  /// By Phase; validation is not measured.
  std::array<double, kPhases> milliseconds{};
  double step_milliseconds = 0;    // all phases together
  double loader_milliseconds = 0;  // making a batch when nobody trains
  double seconds() const;          // estimate for all epochs, no validation

  // ---- Bytes ----

  int64_t weight_bytes = 0;  // parameters, buffers, fp32 masters
  int64_t gradient_bytes = 0;
  int64_t optimizer_bytes = 0;  // moments and the like
  /// The most that was alive in a step beyond weights and optimizer.
  int64_t step_bytes = 0;
  int64_t bytes() const { return weight_bytes + optimizer_bytes + step_bytes; }

  /// What looks wrong, and what would be faster.
  std::vector<std::string> problems, advice;

  /// All of it, for people.
  std::string to_string() const;
};

}  // namespace tern
