#include "tern/learner/inference/program_checks.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tern/learner/inference/frozen_graph.h"

namespace tern {

namespace {

namespace jit = torch::jit;
using jit::Value;

bool is_recurrent(const jit::Node& node) {
  static constexpr std::array<std::string_view, 4> names = {
      "aten::lstm",
      "aten::gru",
      "aten::rnn_tanh",
      "aten::rnn_relu"};
  return std::ranges::count(names, node.kind().toQualString()) > 0;
}

void collect(jit::Block& block, std::vector<jit::Node*>& found) {
  for (jit::Node* node : block.nodes()) {
    if (is_recurrent(*node)) found.push_back(node);
    for (jit::Block* inner : node->blocks()) collect(*inner, found);
  }
}

// Inputs are (input, hx, weights, ..., batch_first), or for packed inputs
// (data, batch_sizes, hx, weights, ...). An LSTM's hx is a list of two tensors.
void add_check(jit::Graph& graph, jit::Node& node) {
  const jit::WithInsertPoint before(&node);
  const bool is_packed = node.schema().overload_name() == "data";
  const size_t hx = is_packed ? 2 : 1;
  Value* samples = nullptr;
  if (is_packed) {
    Value* const largest =
        graph.insert(c10::aten::select, {node.input(1), 0, 0});
    samples = graph.insert(c10::aten::Int, {largest});
  } else {
    Value* const is_first = graph.insert(c10::aten::Int, {node.input(8)});
    Value* const axis = graph.insert(c10::aten::sub, {1, is_first});
    samples = graph.insert(c10::aten::size, {node.input(0), axis});
  }
  std::vector<Value*> states = {node.input(hx)};
  if (node.kind() == c10::aten::lstm) {
    Value* const list = node.input(hx);
    states = {
        graph.insert(c10::aten::__getitem__, {list, 0}),
        graph.insert(c10::aten::__getitem__, {list, 1})};
  }
  // For example "encoder.lstm", from the name of its first weight.
  std::string module = weight_name(*node.input(hx + 1));
  module.erase(std::min(module.rfind('.'), module.size()));
  for (Value* const state : states) {
    Value* const size = graph.insert(c10::aten::size, {state, 1});
    raise_if(
        graph,
        size,
        c10::aten::ne,
        samples,
        fmt::format(
            "[Model] {}{} has a state for {{}} samples and got {{}}; expected "
            "the same number. If the file was traced by an older version, its "
            "state has the batch size of the trace: give it batches of that "
            "size, or export the network again.",
            node.kind().toQualString(),
            module.empty() ? "" : " of the module " + module));
  }
}

}  // namespace

bool add_state_checks(jit::Graph& graph) {
  std::vector<jit::Node*> found;
  collect(*graph.block(), found);
  for (jit::Node* node : found) add_check(graph, *node);
  return !found.empty();
}

void raise_if(
    jit::Graph& graph,
    Value* first,
    c10::Symbol comparison,
    Value* second,
    const std::string& text) {
  Value* const is_wrong = graph.insert(comparison, {first, second});
  jit::Node* const branch =
      graph.insertNode(graph.create(c10::prim::If, {is_wrong}, 0));
  jit::Block* const raises = branch->addBlock();
  branch->addBlock();
  const jit::WithInsertPoint inside(raises);
  Value* const error = graph.insert(c10::aten::format, {text, first, second});
  Value* const no_class = graph.insertNode(graph.createNone())->output();
  graph.insertNode(
      graph.create(c10::prim::RaiseException, {error, no_class}, 0));
}

}  // namespace tern
