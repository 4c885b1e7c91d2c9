#pragma once

#include <map>
#include <string>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

/// Every operator that the exporter writes, and others of opset 17, computed as
/// ONNX's specification says, not as the exporter means it:
/// https://onnx.ai/onnx/operators. To add one: a line in the file of its kind.
const ComputeTable& interpreted_operators();

/// Computes what an ONNX graph gives, on the CPU.
/// \param inputs  Of the graph: its weights by name, and what it is given.
/// \throws c10::ValueError naming the operator that takes what ONNX does not
///         allow; c10::Error if `interpreted_operators` lacks one.
std::vector<torch::Tensor> interpret(
    const torch::jit::Graph& graph,
    std::map<std::string, torch::Tensor> inputs);

}  // namespace tern::onnx
