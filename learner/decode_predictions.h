#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/loss.h"
#include "tern/learner/predictions.h"

namespace tern {

/// Returns what the outputs of a model predict, with names and activations
/// filled in: `data.outputs`, or if it is empty, one entry for the first
/// output, derived from the loss and the classes. Always returns at least one
/// entry.
std::vector<OutputInfo> output_info(const DataBunch& data, const Loss& loss);

/// Applies each output's activation, in kFloat. Outputs without an entry in
/// `info` are treated as regression outputs. A detector's first four outputs
/// become three: boxes, scores and labels. The entries of `info` are for the
/// resulting outputs.
Tensors activate(const Tensors& outputs, const std::vector<OutputInfo>& info);

/// True if an output of one sample, without the batch dimension, is a mask: a
/// class for each pixel.
bool is_mask(const torch::Tensor& output, const OutputInfo& info);

/// True if the outputs of one sample, activated and without the batch
/// dimension, begin with a detector's boxes [D, 4], scores [D] and labels [D].
bool are_detections(
    const Tensors& outputs,
    const std::vector<OutputInfo>& info);

/// Interprets the model's outputs for one sample. A detector's three outputs
/// (boxes, scores and labels) become one prediction.
///
///   Predictions preds = learn.get_preds();
///   fmt::print("{}\n", decode(preds, 0).label);
///
/// \param outputs  Activated, without the batch dimension.
/// \param info  Outputs without an entry are treated as regression outputs.
Prediction decode(const Tensors& outputs, const std::vector<OutputInfo>& info);
/// The same for sample `index` of a whole dataset.
/// \throws c10::IndexError if there is no such sample.
Prediction decode(const Predictions& predictions, int64_t index);

/// Returns the outputs for sample `index`, without the batch dimension. Those
/// that are not per sample are undefined.
/// \throws c10::IndexError if there is no such sample.
Tensors sample_outputs(const Predictions& predictions, int64_t index);

/// Converts predictions to the form of targets: the most probable class, the
/// classes with a probability above the threshold, or the values of a
/// regression.
/// \param preds  [N, ...], activated; for classes [N, C, ...].
torch::Tensor
decoded(TargetKind kind, const torch::Tensor& preds, double threshold = 0.5);

/// Returns the name of a class, or its index if it has none.
std::string class_name(const std::vector<std::string>& classes, int64_t index);

/// Returns a prediction as text: "cat (0.973)", "haze (0.912), road (0.634)",
/// "age 41.2". Several outputs are separated by semicolons.
std::string to_string(const Prediction& prediction);

}  // namespace tern
