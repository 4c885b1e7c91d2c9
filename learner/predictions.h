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

/// Result of a pass over validation data.
struct Validation {
  double loss = 0;  // mean over all samples
  std::vector<MetricValue> metrics;

  /// `validate()["accuracy"]`.
  /// \throws c10::ValueError that lists the names there are.
  double operator[](const std::string& metric) const {
    return metric_value(metrics, metric, "validate()");
  }
};

/// A parameter's gradient by the parameter's name; see Learner::gradients.
struct NamedGradient {
  std::string name;
  torch::Tensor gradient;  // kFloat
};

/// The model's predictions for a whole dataset, in its order, on the CPU.
/// `decode` (learner/decode_predictions.h) turns one of them into a Prediction.
struct Predictions {
  torch::Tensor preds;    // [N, ...] kFloat, with the loss's activation applied
  torch::Tensor targets;  // [N, ...]; undefined if the data has none
  torch::Tensor losses;   // [N] kFloat; undefined unless asked for
  /// All outputs of the model and all targets; `preds` and `targets` are the
  /// first. A further output that cannot be concatenated over batches, such as
  /// a scalar, is undefined.
  Tensors outputs, all_targets;
  std::vector<OutputInfo> info;  // what the outputs predict
  /// Of each row, the index of its sample in the dataset: 0 to N - 1, unless
  /// the loader has a sampler or images that cannot be read were left out.
  std::vector<int64_t> indices;
};

/// Options of `Learner::tta`; fastai v2's defaults. fastai v1 has `beta` 0.4
/// and 8 passes, one for each corner and mirror image. For outputs per pixel,
/// such as a mask, `n` and `beta` do not apply: the predictions for the image
/// and for its mirror image, mirrored back, are averaged; `use_max` applies.
struct TtaOptions {
  /// Augmented passes over the data, each with the training transforms and its
  /// own random numbers.
  int64_t n = 4;
  /// Weight of the pass without augmentation; the others share the rest.
  double beta = 0.25;
  /// Takes the maximum over all passes instead of their mean.
  bool use_max = false;
};

/// The model's prediction for one sample; of several outputs, the first.
struct Prediction {
  /// For display: the most likely class, the classes above the
  /// threshold, the numbers; empty for a mask.
  std::string label;
  int64_t index = -1;           // of the most likely class; -1 if there is none
  torch::Tensor probabilities;  // the output after its activation, on the CPU
  TargetKind kind = TargetKind::category;
  std::vector<std::string> labels;  // the class, or those above the threshold
  std::vector<int64_t> indices;     // of these classes
  std::vector<double> numbers;      // of a regression
  torch::Tensor mask;  // [H, W] kLong, the class of each pixel; [C, H, W] of 0
                       // and 1 where each class has a sigmoid of its own
  /// Of a detector: [D, 4] kFloat, x1, y1, x2, y2, those with a score of at least
  /// the threshold, the best first; `labels` and `indices` are their classes. In
  /// pixels of the photograph for an image file or a cv::Mat, and for any image
  /// that a Predictor prepares; else of the model's input.
  torch::Tensor boxes;
  std::vector<double> scores;  // of these boxes
  torch::Tensor points;        // [P, 2] kFloat, x, y in pixels, as `boxes`
  /// The prediction of each output, the first included; empty in these.
  std::vector<Prediction> outputs;
};

}  // namespace tern
