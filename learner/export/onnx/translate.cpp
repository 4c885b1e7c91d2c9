#include "tern/learner/export/onnx/translate.h"

#include <fmt/format.h>
#include <torch/csrc/jit/ir/alias_analysis.h>

#include "tern/learner/export/onnx/aten_node.h"
#include "tern/learner/export/onnx/operators.h"
#include "tern/learner/inference/frozen_graph.h"

namespace tern::onnx {

namespace {

// An operator that writes into its first argument, such as relu_, is written
// like relu: in a trace, later uses of the tensor itself have the operator's
// result. Those of what shares its memory, such as a slice, have not.
bool overwrites_others(jit::Node& node) {
  const auto graph = node.owningGraph()->shared_from_this();
  const jit::AliasDb aliases(graph);
  for (const jit::Node* later = &node; later != graph->return_node();) {
    later = later->next();
    for (const Value* read : later->inputs()) {
      const bool is_older = read->node()->isBefore(&node);
      if (is_older && aliases.mayAlias(read, node.input(0))) return true;
    }
  }
  return false;
}

void translate_node(jit::Node& node, OnnxGraph& graph) {
  const std::string name = node.kind().toQualString();
  graph.check_path(name + std::to_string(sizes_of(node.output(0)).size()));
  if (name.ends_with('_') && overwrites_others(node)) {
    refuse("it writes into what is read later. Use the operator without _");
  }
  const auto function =
      operators().find(name.substr(0, name.find_last_not_of('_') + 1));
  if (function == operators().end()) {
    refuse(
        "the exporter cannot write it; expected operators of the list in "
        "docs/inference.md. Write the module with those");
  }
  AtenNode aten(node, graph);
  const Values results = function->second(aten, graph);
  aten.check_unread();
  for (size_t i = 0; i < results.size(); ++i) {
    graph.set_value(aten.outputs()[i], results[i]);
  }
}

// Puts the operator and its module before the error that `step` throws.
template <typename Step>
void with_place_in_errors(
    const std::string& what,
    const jit::Node& node,
    Step step) try {
  step();
} catch (const c10::Error& error) {
  const std::string why = error.what_without_backtrace();
  if (why.starts_with("[export_onnx]")) throw;
  C10_THROW_ERROR(
      ValueError,
      fmt::format("[export_onnx] {} in {}: {}.", what, place_of(node), why));
}

}  // namespace

void translate(
    jit::Graph& trace,
    const std::vector<std::string>& input_names,
    const std::vector<std::string>& output_names,
    OnnxGraph& graph) {
  with_place_in_errors("an input", *trace.param_node(), [&] {
    for (size_t i = 0; i < input_names.size(); ++i) {
      graph.add_input(trace.inputs()[i], input_names[i]);
    }
  });
  for (jit::Node* node : trace.nodes()) {
    if (node->kind().is_prim()) continue;
    with_place_in_errors(node->kind().toQualString(), *node, [&] {
      translate_node(*node, graph);
    });
  }
  // A model with several outputs has one tuple of them.
  jit::Node& last = *trace.outputs()[0]->node();
  const bool is_tuple = last.kind() == c10::prim::TupleConstruct;
  const auto outputs = is_tuple ? last.inputs() : trace.outputs();
  for (size_t i = 0; i < output_names.size(); ++i) {
    with_place_in_errors("an output", *outputs[i]->node(), [&] {
      graph.add_output(outputs[i], output_names[i]);
    });
  }
}

}  // namespace tern::onnx
