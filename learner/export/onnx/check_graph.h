#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tern/data/batch.h"
#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Compares the outputs of a graph with those of its model, before the file is
/// written: shapes, types and numbers, where NaN equals NaN. If the model
/// rounds or compares numbers, rounding errors can change a result. Therefore
/// one number in 10,000 may differ, or four times as many as change in the
/// model itself when its inputs change by rounding.
///
/// \param samples    Inputs of several sizes. Those that the model rejects are
///                   skipped; the last ones are only used if it rejects all
///                   others.
/// \param forward    The model.
/// \param tolerance  Relative to the largest number of an output, or to 0.3 if
///                   that is larger.
/// \param rest       Computes the expected outputs after those of `forward`,
///                   from the outputs of the graph. Steps such as thresholds
///                   and sorting are thus compared for the same numbers,
///                   unaffected by rounding before them.
/// \throws c10::ValueError saying which output differs, by how much, and for
///         which inputs; with the model's own error, if it rejects all inputs.
void check_graph(
    const OnnxGraph& graph,
    const std::vector<std::string>& output_names,
    const std::vector<Tensors>& samples,
    const std::function<Tensors(const Tensors&)>& forward,
    double tolerance,
    const std::function<Tensors(const Tensors&)>& rest = nullptr);

}  // namespace tern::onnx
