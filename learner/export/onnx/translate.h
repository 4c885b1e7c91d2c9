#pragma once

#include <string>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>

#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// Translates each operator of a trace into the ONNX graph, with its function
/// in `operators()`.
/// \throws c10::ValueError naming an operator that is not supported, and its
///         module.
void translate(
    jit::Graph& trace,
    const std::vector<std::string>& input_names,
    const std::vector<std::string>& output_names,
    OnnxGraph& graph);

}  // namespace tern::onnx
