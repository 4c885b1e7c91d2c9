#include "tern/learner/weights/frozen_graph.h"

#include <algorithm>

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/frozen_conv_folding.h>

namespace tern {

namespace {

namespace jit = torch::jit;

// The module of a weight.
std::string owner_of(const std::string& name) {
  const size_t point = name.rfind('.');
  return point == std::string::npos ? "" : name.substr(0, point);
}

}  // namespace

std::shared_ptr<jit::Graph> frozen_graph(const jit::Module& trace) {
  auto graph = trace.get_method("forward").graph();
  std::unordered_map<const jit::Value*, c10::IValue> attributes = {
      {graph->inputs()[0], trace._ivalue()}};
  for (jit::Node* node : graph->nodes()) {
    if (node->kind() != c10::prim::GetAttr) continue;
    const auto owner = attributes.at(node->input()).toObject();
    const c10::IValue value = owner->getAttr(node->s(c10::attr::name));
    attributes[node->output()] = value;
    if (!value.isTensor()) continue;
    const jit::WithInsertPoint here(node);
    node->output()->replaceAllUsesWith(
        graph->insertConstant(value.toTensor().detach()));
  }
  const jit::AliasDb aliases(graph);
  for (jit::Node* node : graph->nodes()) {
    TORCH_CHECK_VALUE(
        node->kind() != c10::aten::empty || aliases.hasOutputWriters(node),
        "[export_onnx] the model's forward makes a tensor of given numbers, "
        "and a trace does not have them; expected such tensors as buffers. "
        "Make it in the constructor, with register_buffer.");
  }
  jit::ConstantPropagation(graph);
  std::unordered_map<const void*, std::string> names;  // of transposed ones too
  for (const auto& item : trace.named_attributes()) {
    if (!item.value.isTensor()) continue;
    names.emplace(item.value.toTensor().const_data_ptr(), item.name);
  }
  for (jit::Node* node : graph->nodes()) {
    if (node->kind() != c10::prim::Constant) continue;
    const auto value = jit::toIValue(node->output());
    if (!value->isTensor()) continue;
    const auto name = names.find(value->toTensor().const_data_ptr());
    if (name != names.end()) node->output()->setDebugName(name->second);
  }
  jit::FoldFrozenConvBatchnorm(graph);
  for (jit::Node* node : graph->nodes()) {
    if (node->kind() != c10::aten::_convolution) continue;
    std::string name = node->input(1)->debugName();
    const size_t end = name.rfind("_fused_bn");
    if (end == std::string::npos) continue;
    name.resize(end);
    node->input(1)->setDebugName(name);
    node->input(2)->setDebugName(owner_of(name) + ".bias");
  }
  return graph;
}

std::unordered_map<const jit::Value*, const jit::Value*> twins_of(
    jit::Graph& first,
    jit::Graph& second) {
  std::unordered_map<const jit::Value*, const jit::Value*> twins;
  const auto add = [&](at::ArrayRef<jit::Value*> a,
                       at::ArrayRef<jit::Value*> b) {
    for (size_t i = 0; i < a.size(); ++i) twins[a[i]] = b[i];
  };
  add(first.inputs(), second.inputs());
  auto at = second.nodes().begin();
  for (jit::Node* node : first.nodes()) {
    jit::Node* const twin = *at++;
    if (node->kind() != twin->kind() ||
        node->inputs().size() != twin->inputs().size() ||
        node->outputs().size() != twin->outputs().size()) {
      return {};
    }
    add(node->outputs(), twin->outputs());
  }
  if (*at != second.return_node()) return {};
  return twins;
}

// C++ modules leave no names in a trace, but their weights have them.
std::string module_of(const jit::Node& node) {
  std::string before, after;
  for (const jit::Node* other : node.owningGraph()->nodes()) {
    for (const jit::Value* input : other->inputs()) {
      const bool is_weight =
          input->node()->kind() == c10::prim::Constant && input->hasDebugName();
      if (!is_weight || !after.empty()) continue;
      if (!node.isBefore(other)) before = input->debugName();
      if (!other->isBefore(&node)) after = input->debugName();
    }
  }
  before.erase(std::ranges::mismatch(before, after).in1, before.end());
  return owner_of(before);
}

// Later uses of the tensor itself have the operator's result in a trace; those
// of what shares its memory have not.
bool overwrites_others(jit::Node& node) {
  jit::Graph& graph = *node.owningGraph();
  const jit::AliasDb aliases(graph.shared_from_this());
  const auto is_overwritten = [&](const jit::Value* value) {
    const bool is_read_later = std::ranges::any_of(
        value->uses(),
        [&](const jit::Use& use) { return use.user->isAfter(&node); });
    return is_read_later && aliases.mayAlias(value, node.input(0));
  };
  bool is_any = std::ranges::any_of(graph.inputs(), is_overwritten);
  for (jit::Node* before : graph.nodes()) {
    if (before == &node) break;
    is_any = is_any || std::ranges::any_of(before->outputs(), is_overwritten);
  }
  return is_any;
}

}  // namespace tern
