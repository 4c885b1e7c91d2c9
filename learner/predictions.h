#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/train_state.h"

namespace tern {

/// Result of a pass over validation data.
struct Validation {
  double loss = 0;  // mean over all samples
  std::vector<MetricValue> metrics;

  /// `validate()["accuracy"]`. \throws c10::ValueError that lists the names
  /// there are.
  double operator[](const std::string& metric) const {
    return metric_value(metrics, metric, "validate()");
  }
};

/// A parameter's gradient by the parameter's name; see Learner::gradients.
struct NamedGradient {
  std::string name;
  torch::Tensor gradient;  // kFloat
};

/// The model's answers to a whole data set, in its order, on the CPU.
struct Predictions {
  torch::Tensor preds;    // [N, ...] kFloat, with the loss's activation applied
  torch::Tensor targets;  // [N, ...]; undefined if the data has none
  torch::Tensor losses;   // [N] kFloat; undefined unless asked for
};

/// The model's answer to one sample.
struct Prediction {
  std::string label;            // name of the likeliest class; may be empty
  int64_t index = -1;           // its index; -1 when there are no classes
  torch::Tensor probabilities;  // one sample's answer, activated, on the CPU
};

}  // namespace tern
