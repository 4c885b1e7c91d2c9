// Sums, means, extremes and the softmax over dimensions.
#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch reduces over all dimensions where `dim` is missing, None or empty;
// so does ONNX without axes. In opset 17 ReduceSum has them as an input, the
// others as an attribute.
Value* reduce(
    const char* type,
    AtenNode& node,
    OnnxGraph& graph,
    bool has_axes_as_input = false) {
  node.ignore({"dtype"});  // that of the result
  Values inputs = {node.value("self", node.output_type())};
  Attributes attributes;
  const Integers axes = node.integers("dim");
  if (!axes.empty() && has_axes_as_input) {
    inputs.push_back(graph.integers(axes));
  } else if (!axes.empty()) {
    attributes.emplace_back("axes", axes);
  }
  attributes.emplace_back("keepdims", node.flag("keepdim"));
  return graph.op(type, inputs, attributes);
}

}  // namespace

Values sum(AtenNode& node, OnnxGraph& graph) {
  return {reduce("ReduceSum", node, graph, /*has_axes_as_input=*/true)};
}

Values mean(AtenNode& node, OnnxGraph& graph) {
  return {reduce("ReduceMean", node, graph)};
}

Values amax(AtenNode& node, OnnxGraph& graph) {
  return {reduce("ReduceMax", node, graph)};
}

Values amin(AtenNode& node, OnnxGraph& graph) {
  return {reduce("ReduceMin", node, graph)};
}

// Without `dim`, PyTorch counts places in the flattened tensor, which ONNX
// does not: refused.
Values argmax(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "ArgMax",
      {node.value("self")},
      {{"axis", node.integer("dim")}, {"keepdims", node.flag("keepdim")}})};
}

// ONNX sorts, whether it is asked or not.
Values topk(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"sorted"});
  return graph.op_with_outputs(
      2,
      "TopK",
      {node.value("self"), graph.integers(node.integers("k"))},
      {{"axis", node.integer("dim")}, {"largest", node.flag("largest")}});
}

// `dtype` is the type of the result, in which PyTorch computes.
Values softmax(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"dtype"});
  return {graph.op(
      "Softmax",
      {node.value("self", node.output_type())},
      {{"axis", node.integer("dim")}})};
}

Values log_softmax(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"dtype"});
  return {graph.op(
      "LogSoftmax",
      {node.value("self", node.output_type())},
      {{"axis", node.integer("dim")}})};
}

}  // namespace tern::onnx
