#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/learner/train_state.h"

namespace cv {
class Mat;
}

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

/// Options of `Learner::tta`; fastai v2's defaults. fastai v1 has `beta` 0.4
/// and 8 passes, one for each corner and mirror image.
struct TtaOptions {
  /// Passes over the data, each with random numbers of its own for the
  /// transforms for training.
  int64_t n = 4;
  /// Weight of the plain pass; the augmented ones share the rest.
  double beta = 0.25;
  /// The largest of all answers instead of their mean.
  bool use_max = false;
};

/// The model's answer to one sample.
struct Prediction {
  std::string label;            // name of the likeliest class; may be empty
  int64_t index = -1;           // its index; -1 when there are no classes
  torch::Tensor probabilities;  // one sample's answer, activated, on the CPU
};

}  // namespace tern
