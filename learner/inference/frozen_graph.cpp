#include "tern/learner/inference/frozen_graph.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/frozen_conv_folding.h>
#include <torch/csrc/jit/passes/lower_graph.h>

#include "tern/kernels/check.h"

namespace tern {

namespace jit = torch::jit;

namespace {

/// Returns the tensor of a constant, or the first in a list of weights, such as
/// an LSTM's, which is enough to identify the module.
std::optional<torch::Tensor> first_tensor(const jit::Value* constant) {
  const auto value = jit::toIValue(constant);
  if (value->isTensor()) return value->toTensor();
  if (!value->isTensorList() || value->toTensorVector().empty()) return {};
  return value->toTensorVector()[0];
}

}  // namespace

void check_made_tensors(
    const std::shared_ptr<jit::Graph>& trace,
    const char* call) {
  const jit::AliasDb aliases(trace);
  for (jit::Node* node : trace->nodes()) {
    TERN_CHECK_VALUE(
        node->kind() != c10::aten::empty || aliases.hasOutputWriters(node),
        "[{}] the model's forward creates a tensor from constants, which a "
        "trace does not keep; expected such tensors as buffers. Create it in "
        "the constructor, with register_buffer.",
        call);
  }
}

std::shared_ptr<jit::Graph> constant_graph(
    const jit::Module& trace,
    jit::Graph& forward,
    const char* call) {
  auto [graph, weights] = jit::LowerGraph(forward, trace._ivalue());
  for (; !weights.empty(); weights.pop_back()) {
    const jit::WithInsertPoint here(*graph->nodes().begin());
    const auto weight = weights.back().toTensor().detach();
    graph->inputs().back()->replaceAllUsesWith(graph->insertConstant(weight));
    graph->eraseInput(graph->inputs().size() - 1);
  }
  check_made_tensors(graph, call);
  jit::ConstantPropagation(graph);
  std::unordered_map<const void*, std::string> names;  // key: address of data
  for (const auto& item : trace.named_attributes()) {
    if (!item.value.isTensor()) continue;
    names.emplace(item.value.toTensor().const_data_ptr(), item.name);
  }
  for (jit::Node* node : graph->nodes()) {
    if (node->kind() != c10::prim::Constant) continue;
    const auto tensor = first_tensor(node->output());
    if (!tensor) continue;
    const auto name = names.find(tensor->const_data_ptr());
    if (name == names.end()) continue;
    const bool is_list = !node->output()->type()->cast<c10::TensorType>();
    node->output()->setDebugName(name->second + (is_list ? "[]" : ""));
  }
  return graph;
}

namespace {

// PyTorch's pass also folds a BatchNorm that uses the batch's statistics, as if
// it used running statistics. It skips a BatchNorm whose arguments are not
// constant, so for its lifetime this object replaces the argument `training` of
// such a BatchNorm by a graph input.
class HiddenBatchStatistics {
 public:
  explicit HiddenBatchStatistics(jit::Graph& graph) : graph_(graph) {
    constexpr size_t kTraining = 5;
    for (jit::Node* node : graph.nodes()) {
      if (node->kind() != c10::aten::batch_norm) continue;
      if (jit::toIValue(node->input(kTraining)) == c10::IValue(false)) continue;
      if (!hidden_) hidden_ = graph.addInput()->setType(c10::BoolType::get());
      node->replaceInput(kTraining, hidden_);
    }
  }
  ~HiddenBatchStatistics() {
    if (!hidden_) return;
    const jit::WithInsertPoint here(*graph_.nodes().begin());
    hidden_->replaceAllUsesWith(graph_.insertConstant(true));
    graph_.eraseInput(graph_.inputs().size() - 1);
  }
  HiddenBatchStatistics(const HiddenBatchStatistics&) = delete;
  HiddenBatchStatistics& operator=(const HiddenBatchStatistics&) = delete;

 private:
  jit::Graph& graph_;
  jit::Value* hidden_ = nullptr;
};

}  // namespace

void fold_batch_norms(std::shared_ptr<jit::Graph>& graph) {
  {
    const HiddenBatchStatistics hidden(*graph);
    jit::FoldFrozenConvBatchnorm(graph);
  }
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
}

std::shared_ptr<jit::Graph> frozen_graph(const jit::Module& trace) {
  auto graph = constant_graph(
      trace,
      *trace.get_method("forward").graph(),
      "export_onnx");
  fold_batch_norms(graph);
  return graph;
}

std::string weight_name(const jit::Value& value) {
  const jit::Node* node = value.node();
  if (node->kind() == c10::prim::Constant && value.hasDebugName()) {
    return value.debugName();
  }
  if (node->kind() == c10::prim::ListConstruct && !node->inputs().empty()) {
    node = node->input(0)->node();
  }
  // Weights are attributes of modules, which are attributes of other modules.
  if (node->outputs().size() != 1 ||
      !node->output()->type()->cast<c10::TensorType>()) {
    return "";
  }
  std::string name;
  for (; node->kind() == c10::prim::GetAttr; node = node->input()->node()) {
    const std::string& part = node->s(c10::attr::name);
    name = name.empty() ? part : part + '.' + name;
  }
  return name;
}

// C++ modules leave no names in a trace, but their weights have names. The
// module is the one that owns the operator's weights, or else the one that
// contains the weights before and after it.
std::string place_of(const jit::Node& node) {
  std::string before, after;
  for (const jit::Node* other : node.owningGraph()->nodes()) {
    for (const jit::Value* input : other->inputs()) {
      const std::string name = weight_name(*input);
      if (name.empty() || !after.empty()) continue;
      if (!node.isBefore(other)) before = name;
      if (!other->isBefore(&node)) after = name;
    }
  }
  before.erase(std::ranges::mismatch(before, after).in1, before.end());
  const size_t end = before.rfind('.');
  return end == std::string::npos ? "the model itself"
                                  : "its module " + before.substr(0, end);
}

}  // namespace tern
