#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/data/batch.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Compares the outputs of a graph with its model's outputs before the file is
/// written: shapes, dtypes and numbers, where NaN equals NaN. If the model
/// rounds or compares numbers, rounding errors can change a result. Therefore
/// one number in 10,000 may differ, or four times as many numbers as change in
/// the model's own outputs when its inputs are perturbed by rounding errors.
///
/// \param samples    Inputs of several sizes. Inputs that the model rejects are
///                   skipped; the last inputs are used only if it rejects all
///                   others.
/// \param forward    The model.
/// \param tolerance  Relative to the largest number of an output, or to 0.3 if
///                   that is larger.
/// \param rest       Computes the expected outputs that follow the outputs of
///                   `forward`, from the graph's own outputs. Steps such as
///                   thresholds and sorting are thus compared on identical
///                   numbers, and earlier rounding does not affect them.
/// \throws c10::ValueError with the output that differs, by how much, and for
///         which inputs; with the model's own error if it rejects all inputs.
void check_graph(
    const OnnxGraph& graph,
    const std::vector<std::string>& output_names,
    const std::vector<Tensors>& samples,
    const std::function<Tensors(const Tensors&)>& forward,
    double tolerance,
    const std::function<Tensors(const Tensors&)>& rest = nullptr);

}  // namespace tern::onnx
