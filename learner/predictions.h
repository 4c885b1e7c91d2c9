#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/output_info.h"
#include "tern/learner/train_state.h"

namespace cv {
class Mat;
}

namespace tern {

/// Result of an evaluation.
struct Validation {
  double loss = 0;  // mean over all samples
  std::vector<MetricValue> metrics;

  /// `validate()["accuracy"]`: the value of a metric.
  /// \throws c10::ValueError listing the existing names.
  double operator[](const std::string& metric) const {
    return metric_value(metrics, metric, "validate()");
  }
};

/// The gradient of a parameter, with the parameter's name; see
/// Learner::gradients.
struct NamedGradient {
  std::string name;
  torch::Tensor gradient;  // kFloat
};

/// The model's predictions for a whole dataset, in its order, on the CPU.
/// `decode` (learner/decode_predictions.h) converts a sample's predictions to a
/// Prediction.
struct Predictions {
  torch::Tensor preds;    // [N, ...] kFloat, with the loss's activation applied
  torch::Tensor targets;  // [N, ...]; undefined without targets
  torch::Tensor losses;   // [N] kFloat; undefined unless requested
  /// All outputs of the model and all targets; `preds` and `targets` are the
  /// first of each. A further output that cannot be concatenated over batches,
  /// such as a scalar, is undefined.
  Tensors outputs, all_targets;
  std::vector<OutputInfo> info;  // what the outputs predict
  /// The dataset index of each row's sample: 0 to N - 1, unless the loader has
  /// a sampler or unreadable images were left out.
  std::vector<int64_t> indices;
};

/// Options of `Learner::tta`, with fastai v2's defaults. (fastai v1 has `beta`
/// 0.4 and 8 passes, one for each corner, flipped or not.) For per-pixel
/// outputs such as masks, `n` and `beta` do not apply: the predictions for the
/// image and for its flipped copy, flipped back, are averaged; with `use_max`,
/// their maximum is taken.
struct TtaOptions {
  /// Number of augmented passes over the data, each with the training
  /// transforms and different random numbers.
  int64_t n = 4;
  /// Weight of the pass without augmentation; the augmented passes share the
  /// rest equally.
  double beta = 0.25;
  /// Take the maximum over all passes instead of their mean.
  bool use_max = false;
};

/// The model's prediction for one sample. If the model has several outputs, the
/// fields describe the first.
struct Prediction {
  /// For display: the most likely class, the classes above the threshold, or
  /// the values of a regression; empty for a mask.
  std::string label;
  int64_t index = -1;           // of the most likely class; -1: none
  torch::Tensor probabilities;  // the activated output, on the CPU
  TargetKind kind = TargetKind::category;
  std::vector<std::string> labels;  // the class, or all above the threshold
  std::vector<int64_t> indices;     // of these classes
  std::vector<double> numbers;      // of a regression
  torch::Tensor mask;  // [H, W] kLong, the class of each pixel; [C, H, W] of 0
                       // and 1 if each class has its own sigmoid
  /// For a detector: [D, 4] kFloat, x1, y1, x2, y2 of the detections with a
  /// score of at least the threshold, by descending score; `labels` and
  /// `indices` are their classes. The coordinates are pixels of the original
  /// image for an image file, a cv::Mat, and any image that a Predictor
  /// preprocesses; otherwise pixels of the model's input.
  torch::Tensor boxes;
  std::vector<double> scores;  // of these boxes
  torch::Tensor points;        // [P, 2] kFloat, x, y in pixels, like `boxes`
  /// The predictions of all outputs, including the first. In these, `outputs`
  /// is empty.
  std::vector<Prediction> outputs;
};

}  // namespace tern
