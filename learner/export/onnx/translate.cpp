#include "tern/learner/export/onnx/translate.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "tern/learner/export/onnx/aten_node.h"
#include "tern/learner/export/onnx/operators.h"
#include "tern/learner/inference/frozen_graph.h"

namespace tern::onnx {

namespace {

// Adds the values that own the memory of `value`, which may be a view.
// PyTorch's own analysis assumes that a part of a `chunk` may belong to any
// tensor.
void add_makers(const Value* value, std::set<const Value*>& makers) {
  const jit::Node& node = *value->node();
  const std::string name = node.kind().toQualString();
  const bool is_list = node.kind().is_prim() && name != "prim::Constant";
  // In eval mode, dropout returns its input.
  const bool is_dropout = name.ends_with("dropout");
  const c10::FunctionSchema* const schema = node.maybeSchema();
  // PyTorch's recurrent cells use each part of an unsafe_chunk separately;
  // parts of a constant are constants.
  const auto is_part = [&](size_t input) {
    const std::string giver = node.input(input)->node()->kind().toQualString();
    return giver.starts_with("aten::unsafe") || giver == "prim::Constant";
  };
  const auto shares = [&](size_t input) {
    if (is_list) return !is_part(input);
    if (is_dropout) return input == 0;
    return schema && schema->may_contain_alias(
                         {c10::SchemaArgType::input, input},
                         {c10::SchemaArgType::output, value->offset()});
  };
  bool is_made = true;
  for (size_t i = 0; i < node.inputs().size(); ++i) {
    if (!shares(i)) continue;
    add_makers(node.input(i), makers);
    is_made = false;
  }
  if (is_made) makers.insert(value);
}

// True if an operator that writes into its first argument, such as relu_, also
// changes tensors that other operators read. It is translated like relu: in a
// trace, later uses of the tensor itself refer to the operator's result, but
// uses of tensors that share its memory, such as a slice, do not.
bool overwrites_others(const jit::Node& node) {
  std::set<const Value*> written;
  add_makers(node.input(0), written);
  const jit::Node* const last = node.owningGraph()->return_node();
  for (const jit::Node* later = &node; later != last;) {
    later = later->next();
    for (const Value* read : later->inputs()) {
      if (!read->node()->isBefore(&node)) continue;
      std::set<const Value*> makers;
      add_makers(read, makers);
      const auto is_written = [&](const Value* maker) {
        return written.contains(maker);
      };
      if (std::ranges::any_of(makers, is_written)) return true;
    }
  }
  return false;
}

void translate_node(jit::Node& node, OnnxGraph& graph) {
  const std::string name = node.kind().toQualString();
  graph.check_path(name + std::to_string(sizes_of(node.output(0)).size()));
  const auto function = operators().find(operator_name(node));
  if (function == operators().end()) refuse(why_refused(operator_name(node)));
  if (is_in_place(node) && overwrites_others(node)) {
    refuse(
        "it writes in place into a tensor that is read later; expected an "
        "operator that is not in-place. Use the operator without _");
  }
  AtenNode aten(node, graph);
  const Values results = function->second(aten, graph);
  aten.check_unread();
  for (size_t i = 0; i < results.size(); ++i) {
    graph.set_value(aten.outputs()[i], results[i]);
  }
}

// Adds the operator and its module to the error that `step` throws.
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
  // A model with several outputs returns one tuple.
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
