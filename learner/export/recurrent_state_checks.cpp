#include "tern/learner/export/recurrent_state_checks.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/ir.h>

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

// "encoder.lstm", by the path to its first weight; empty where the program
// computes that.
std::string module_of(const Value* weights) {
  const jit::Node* node = weights->node();
  if (node->kind() == c10::prim::ListConstruct && !node->inputs().empty()) {
    node = node->input(0)->node();
  }
  std::string name;
  for (; node->kind() == c10::prim::GetAttr; node = node->input()->node()) {
    const std::string& part = node->s(c10::attr::name);
    name = name.empty() ? part : part + '.' + name;
  }
  const size_t weight = name.rfind('.');
  return weight == std::string::npos ? "" : name.substr(0, weight);
}

/// Raises an error unless the two are equal.
/// \param text  Gets both, in this order, in place of {}.
void require_equal(
    jit::Graph& graph,
    Value* first,
    Value* second,
    const std::string& text) {
  Value* const differ = graph.insert(c10::aten::ne, {first, second});
  jit::Node* const branch =
      graph.insertNode(graph.create(c10::prim::If, {differ}, 0));
  jit::Block* const raises = branch->addBlock();
  branch->addBlock();
  const jit::WithInsertPoint inside(raises);
  Value* const error = graph.insert(c10::aten::format, {text, first, second});
  Value* const no_class = graph.insertNode(graph.createNone())->output();
  graph.insertNode(
      graph.create(c10::prim::RaiseException, {error, no_class}, 0));
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
  const std::string module = module_of(node.input(hx + 1));
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

}  // namespace tern
