// Sorted numbers and their indices.
#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// Returns the `k` largest or smallest numbers along an axis, sorted, and their
// indices. Equal numbers keep their order in both, as in PyTorch's stable sort.
Values sorted(const Term& x, Value* k, int64_t axis, bool is_largest) {
  const bool is_computed =
      x.is_float() || x.type() == torch::kLong || x.type() == torch::kInt;
  const torch::ScalarType type = is_computed ? x.type() : torch::kInt;
  const Values both = x.graph().op_with_outputs(
      2,
      "TopK",
      {x.to(type).value(), k},
      {{"axis", axis}, {"largest", is_largest}});
  const Term numbers(x.graph(), both[0], type);
  return {numbers.to(x.type()).value(), both[1]};
}

// ONNX always sorts.
Values topk(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"sorted"});
  const Term x = node.term("self");
  Value* const k = graph.integers(node.integers("k"));
  return sorted(x, k, node.integer("dim"), node.flag("largest"));
}

Values sort(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"stable"});
  const Term x = node.term("self");
  const int64_t axis = node.dimension("dim");
  Value* const all = graph.integers({node.sizes("self")[axis]});
  return sorted(x, all, axis, node.flag("descending"));
}

Values argsort(AtenNode& node, OnnxGraph& graph) {
  return {sort(node, graph)[1]};
}

}  // namespace

OperatorTable sorting() {
  return {
      {"aten::argsort", argsort},
      {"aten::sort", sort},
      {"aten::topk", topk},
  };
}

}  // namespace tern::onnx
