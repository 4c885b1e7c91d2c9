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

/// Raises an error where the two are so: not equal, or the first larger.
/// \param text  Gets both, in this order, in place of {}.
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

void require_equal(
    jit::Graph& graph,
    Value* first,
    Value* second,
    const std::string& text) {
  raise_if(graph, first, c10::aten::ne, second, text);
}

// (input, hx, weights, ..., batch_first), or packed: (data, batch_sizes, hx,
// weights, ...). An LSTM's hx is a list of two.
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
  // "encoder.lstm", of its first weight.
  std::string module = weight_name(*node.input(hx + 1));
  module.erase(std::min(module.rfind('.'), module.size()));
  for (Value* const state : states) {
    Value* const size = graph.insert(c10::aten::size, {state, 1});
    require_equal(
        graph,
        size,
        samples,
        fmt::format(
            "[Model] {}{} has a state for {{}} samples and was given {{}}; "
            "expected as many. If the file is a trace, it keeps the state of "
            "the batch that it was traced with: give it batches of that size, "
            "or export the network with the state as an input.",
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

void add_batch_check(jit::Graph& graph, Value* input, int64_t size) {
  const jit::WithInsertPoint first(*graph.nodes().begin());
  Value* const own = graph.insert(c10::aten::size, {input, 0});
  require_equal(
      graph,
      own,
      graph.insertConstant(size),
      "[Model] the batch has {} samples; expected {}. The program was exported "
      "for that number alone: give it such batches, or export it with "
      "dynamic_batch.");
}

void add_size_check(
    jit::Graph& graph,
    Value* input,
    size_t index,
    int64_t dimension,
    int64_t size) {
  const jit::WithInsertPoint first(*graph.nodes().begin());
  Value* const own = graph.insert(c10::aten::size, {input, dimension});
  require_equal(
      graph,
      own,
      graph.insertConstant(size),
      fmt::format(
          "[Model] input {} has a size of {{}} in dimension {}; expected {{}}. "
          "The program was exported with an example of that size, and the "
          "network takes no other or computes otherwise with it: give it "
          "inputs of that size, or export it with an example of yours.",
          index,
          dimension));
}

void add_limit_check(
    jit::Graph& graph,
    Value* input,
    size_t index,
    int64_t dimension,
    int64_t size) {
  const jit::WithInsertPoint first(*graph.nodes().begin());
  Value* const own = graph.insert(c10::aten::size, {input, dimension});
  raise_if(
      graph,
      own,
      c10::aten::gt,
      graph.insertConstant(size),
      fmt::format(
          "[Model] input {} has a size of {{}} in dimension {}; expected at "
          "most {{}}. The program was exported with an example of that size, "
          "and the network took none that was larger: give it smaller inputs.",
          index,
          dimension));
}

void add_rows_check(jit::Graph& graph, Value* input, Value* output) {
  const jit::WithInsertPoint last(graph.return_node());
  Value* const rows = graph.insert(c10::aten::size, {output, 0});
  Value* const samples = graph.insert(c10::aten::size, {input, 0});
  require_equal(
      graph,
      rows,
      samples,
      "[Model] the answer has {} rows for {} samples; expected one for each. "
      "The network takes another path for so many samples than for those that "
      "it was exported with: give it fewer, or export the network with an "
      "example of as many.");
}

}  // namespace tern
