// Elements at indices that are numbers or tensors.
#include <algorithm>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch takes one tensor of indices for each of the first dimensions, and
// broadcasts them. GatherND and ScatterND take a single tensor,
// [..., dimensions].
struct Places {
  Value* indices = nullptr;
  Value* shape = nullptr;  // of the indices of one dimension
};

Places places_of(Values indices, OnnxGraph& graph) {
  const bool is_supported = std::ranges::all_of(indices, [](const Value* x) {
    return x != nullptr && type_of(x) != torch::kBool;
  });
  if (!is_supported) {
    refuse(
        "its indices have slices or a mask; expected a tensor of integers for "
        "each of the first dimensions. Use where, masked_fill or index_select");
  }
  Value* broadcast = indices[0];
  for (Value* index : indices) broadcast = graph.op("Add", {broadcast, index});
  Value* const shape = graph.op("Shape", {broadcast});
  for (Value*& index : indices) {
    Value* const expanded = graph.op("Expand", {index, shape});
    index = graph.op("Unsqueeze", {expanded, graph.integers({-1})});
  }
  return {graph.op("Concat", indices, {{"axis", -1}}), shape};
}

// ---- Reading ----

// In both, indexing with a number removes the dimension.
Values select(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "Gather",
      {node.value("self"), node.value("index")},
      {{"axis", node.integer("dim")}})};
}

// ONNX's Gather is index_select; its GatherElements is gather.
Values gather(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "GatherElements",
      {node.value("self"), node.value("index")},
      {{"axis", node.integer("dim")}})};
}

// padding_idx only affects gradients.
Values embedding(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"padding_idx"});
  return {graph.op("Gather", {node.value("weight"), node.value("indices")})};
}

// x[indices, ...] with integer tensors.
Values index(AtenNode& node, OnnxGraph& graph) {
  const Places places = places_of(node.values("indices"), graph);
  return {graph.op("GatherND", {node.value("self"), places.indices})};
}

// PyTorch returns one row per element, ONNX one row per dimension.
Values nonzero(AtenNode& node, OnnxGraph& graph) {
  Value* const places = graph.op("NonZero", {node.value("self", torch::kBool)});
  return {graph.op("Transpose", {places})};
}

// ---- Writing ----

// x[indices, ...] = values. PyTorch broadcasts values, ONNX does not.
// `accumulate` is not supported.
Values index_put(AtenNode& node, OnnxGraph& graph) {
  const Values indices = node.values("indices");
  const Places places = places_of(indices, graph);
  const Integers self = node.sizes("self");
  const Integers rest(self.begin() + std::ssize(indices), self.end());
  Value* const shape =
      graph.op("Concat", {places.shape, graph.integers(rest)}, {{"axis", 0}});
  Value* const values =
      graph.op("Expand", {node.value("values", node.type("self")), shape});
  return {graph.op("ScatterND", {node.value("self"), places.indices, values})};
}

// From a tensor `src` or a number `value`. PyTorch allows `src` to be larger
// than `index`, ONNX does not. `reduce` is not supported.
Values scatter(AtenNode& node, OnnxGraph& graph) {
  const bool is_tensor = node.has("src");
  const char* const source = is_tensor ? "src" : "value";
  if (is_tensor && node.sizes("src") != node.sizes("index")) {
    refuse(
        "its src is larger than index; expected the same shape. Crop it with "
        "slice");
  }
  Value* const shape = graph.op("Shape", {node.value("index")});
  Value* const updates =
      graph.op("Expand", {node.value(source, node.output_type()), shape});
  return {graph.op(
      "ScatterElements",
      {node.value("self"), node.value("index"), updates},
      {{"axis", node.integer("dim")}})};
}

}  // namespace

OperatorTable indexing() {
  return {
      {"aten::embedding", embedding},
      {"aten::gather", gather},
      {"aten::index", index},
      {"aten::index_put", index_put},
      {"aten::index_select", select},
      {"aten::nonzero", nonzero},
      {"aten::scatter", scatter},
      {"aten::select", select},
  };
}

}  // namespace tern::onnx
