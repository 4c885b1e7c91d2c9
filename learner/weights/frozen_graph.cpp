#include "tern/learner/weights/frozen_graph.h"

#include <string>
#include <unordered_map>

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/frozen_conv_folding.h>
#include <torch/csrc/jit/passes/lower_graph.h>

namespace tern {

namespace jit = torch::jit;

std::shared_ptr<jit::Graph> frozen_graph(const jit::Module& trace) {
  auto [graph, weights] =
      jit::LowerGraph(*trace.get_method("forward").graph(), trace._ivalue());
  for (; !weights.empty(); weights.pop_back()) {
    const jit::WithInsertPoint here(*graph->nodes().begin());
    const auto weight = weights.back().toTensor().detach();
    graph->inputs().back()->replaceAllUsesWith(graph->insertConstant(weight));
    graph->eraseInput(graph->inputs().size() - 1);
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
    name.resize(name.rfind('.') + 1);
    node->input(2)->setDebugName(name + "bias");
  }
  return graph;
}

}  // namespace tern
