#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

/// Every operator that the exporter writes, and others of opset 17, computed as
/// ONNX's specification defines them, independently of the exporter:
/// https://onnx.ai/onnx/operators. To support a further operator, add an entry
/// to the table in the file for its kind.
const ComputeTable& interpreted_operators();

/// Computes the outputs of an ONNX graph on the CPU.
/// \param inputs  Inputs of the graph by name, including weights.
/// \throws c10::ValueError naming an operator whose inputs ONNX does not allow;
///         c10::Error if `interpreted_operators` lacks an operator.
std::vector<torch::Tensor> interpret(
    const torch::jit::Graph& graph,
    std::map<std::string, torch::Tensor> inputs);

}  // namespace tern::onnx
