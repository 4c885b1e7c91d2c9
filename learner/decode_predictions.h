#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/loss.h"
#include "tern/learner/predictions.h"

namespace tern {

/// Returns what the outputs of a model predict, names and activations filled
/// in: as `data.outputs` says, and the first else as the loss and the classes
/// tell. At least one.
std::vector<OutputInfo> output_info(const DataBunch& data, const Loss& loss);

/// Applies each output's activation, in kFloat. Outputs beyond `info` are
/// numbers. Of a detector three take the place of its four outputs.
Tensors activate(const Tensors& outputs, const std::vector<OutputInfo>& info);

/// Whether an output of one sample, without the batch dimension, is a mask:
/// classes of pixels.
bool is_mask(const torch::Tensor& output, const OutputInfo& info);

/// Says what a model's answer to one sample means. The three outputs of a
/// detector, boxes, scores and labels, are one answer.
///
///   Predictions answers = learn.get_preds();
///   fmt::print("{}\n", decode(answers, 0).label);
///
/// \param outputs  Activated, without the batch dimension.
/// \param info     Outputs beyond it are numbers.
Prediction decode(const Tensors& outputs, const std::vector<OutputInfo>& info);
/// The same for sample `index` of a whole set.
/// \throws c10::IndexError if there is none.
Prediction decode(const Predictions& answers, int64_t index);

/// Converts predictions to the form of targets: the most probable class, the
/// classes with a probability above the threshold, or the numbers themselves.
/// \param preds  [N, ...], activated; for classes [N, C, ...].
torch::Tensor
decoded(TargetKind kind, const torch::Tensor& preds, double threshold = 0.5);

/// Returns the name of a class, or its index if it has none.
std::string class_name(const std::vector<std::string>& classes, int64_t index);

/// Returns an answer in words: "cat (0.973)", "haze (0.912), road (0.634)",
/// "age 41.2"; those of several outputs with semicolons between.
std::string to_string(const Prediction& prediction);

}  // namespace tern
