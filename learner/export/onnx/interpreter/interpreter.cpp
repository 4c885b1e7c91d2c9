#include "tern/learner/export/onnx/interpreter/interpreter.h"

#include <unordered_map>

#include <fmt/format.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern::onnx {

const ComputeTable& interpreted_operators() {
  static const ComputeTable all = [] {
    ComputeTable table;
    add_numbers(table);
    add_reductions(table);
    add_shapes(table);
    add_places(table);
    add_layers(table);
    add_images(table);
    add_boxes(table);
    add_recurrent(table);
    return table;
  }();
  return all;
}

namespace {

namespace jit = torch::jit;

std::vector<torch::Tensor> compute(
    const jit::Node& node,
    std::vector<torch::Tensor> inputs) {
  const std::string name = node.kind().toUnqualString();
  const auto known = interpreted_operators().find(name);
  TORCH_CHECK(
      known != interpreted_operators().end(),
      fmt::format(
          "[export_onnx] the check of the file cannot compute {}, which is a "
          "bug in Tern; expected operators of interpreter.cpp. Please report "
          "it.",
          name));
  const std::string given = shapes_of(inputs);
  const Operation operation(node, std::move(inputs));
  try {
    std::vector<torch::Tensor> outputs = known->second(operation);
    TERN_CHECK_VALUE(
        outputs.size() == node.outputs().size(),
        "it has {} outputs; expected {}",
        node.outputs().size(),
        outputs.size());
    return outputs;
  } catch (const std::exception& error) {
    C10_THROW_ERROR(
        ValueError,
        fmt::format("{} of {}: {}", name, given, message_of(error)));
  }
}

}  // namespace

std::vector<torch::Tensor> interpret(
    const jit::Graph& graph,
    std::map<std::string, torch::Tensor> inputs) {
  std::unordered_map<const jit::Value*, torch::Tensor> values;
  std::unordered_map<const jit::Value*, size_t> uses;  // remaining uses
  for (const jit::Value* input : graph.inputs()) {
    values[input] = inputs.at(input->debugName());
  }
  inputs.clear();
  for (const jit::Node* node : graph.nodes()) {
    if (node->kind().is_prim()) continue;  // None: a missing input
    std::vector<torch::Tensor> given;
    for (const jit::Value* input : node->inputs()) {
      given.push_back(input->mustBeNone() ? torch::Tensor() : values.at(input));
    }
    const std::vector<torch::Tensor> outputs = compute(*node, std::move(given));
    for (size_t i = 0; i < outputs.size(); ++i) {
      values[node->output(i)] = outputs[i];
      uses[node->output(i)] = node->output(i)->uses().size();
    }
    for (const jit::Value* input : node->inputs()) {
      const auto use = uses.find(input);
      if (use != uses.end() && --use->second == 0) values.erase(input);
    }
  }
  std::vector<torch::Tensor> results;
  for (const jit::Value* output : graph.outputs()) {
    results.push_back(values.at(output));
  }
  return results;
}

}  // namespace tern::onnx
