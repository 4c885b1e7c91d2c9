// Views, slices, joins, padding, and new tensors of one number.
#include <algorithm>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// ONNX's Reshape needs all sizes, for which a trace has those of the result.
Values reshape_to_output(Value* x, AtenNode& node, OnnxGraph& graph) {
  return {graph.op("Reshape", {x, graph.shape_to_infer(node.output_sizes())})};
}

Values filled_like_output(double number, AtenNode& node, OnnxGraph& graph) {
  node.ignore(
      {"self",
       "size",
       "dtype",
       "layout",
       "device",
       "pin_memory",
       "memory_format"});
  Value* const value = graph.scalar(number, node.output_type());
  return {graph.op("Expand", {value, graph.integers(node.output_sizes())})};
}

}  // namespace

// ---- Views ----

Values view(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"size"});
  return reshape_to_output(node.value("self"), node, graph);
}

Values reshape(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"shape"});
  return reshape_to_output(node.value("self"), node, graph);
}

Values view_as(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"other"});
  return reshape_to_output(node.value("self"), node, graph);
}

// ONNX's Flatten always gives two dimensions.
Values flatten(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"start_dim", "end_dim"});
  return reshape_to_output(node.value("self"), node, graph);
}

Values unflatten(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"dim", "sizes"});
  return reshape_to_output(node.value("self"), node, graph);
}

// PyTorch leaves alone a dimension that is not 1, ONNX's Squeeze refuses it.
Values squeeze(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"dim"});
  return reshape_to_output(node.value("self"), node, graph);
}

Values unsqueeze(AtenNode& node, OnnxGraph& graph) {
  Value* const self = node.value("self");
  return {graph.op("Unsqueeze", {self, graph.integers(node.integers("dim"))})};
}

// ONNX has no -1 for a size that stays.
Values expand(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"size"});
  Value* const self = node.value("self");
  return {graph.op("Expand", {self, graph.integers(node.output_sizes())})};
}

Values expand_as(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"other"});
  Value* const self = node.value("self");
  return {graph.op("Expand", {self, graph.integers(node.output_sizes())})};
}

// ---- Order of the dimensions ----

Values permute(AtenNode& node, OnnxGraph& graph) {
  Integers order = node.integers("dims");
  for (int64_t& dim : order) dim += dim < 0 ? std::ssize(order) : 0;
  return {graph.op("Transpose", {node.value("self")}, {{"perm", order}})};
}

Values transpose(AtenNode& node, OnnxGraph& graph) {
  return {graph.swap_dimensions(
      node.value("self"),
      node.rank("self"),
      node.dimension("dim0"),
      node.dimension("dim1"))};
}

// `t` and `mT`; `t` leaves a vector as it is.
Values transpose_matrix(AtenNode& node, OnnxGraph& graph) {
  const int64_t rank = node.rank("self");
  Value* const self = node.value("self");
  if (rank < 2) return {self};
  return {graph.swap_dimensions(self, rank, rank - 2, rank - 1)};
}

// ---- Parts ----

namespace {

// The length is that of the result in the trace, so that a slice to the end
// of a dynamic dimension ends there for other sizes too.
Values
slice_from(int64_t start, int64_t step, AtenNode& node, OnnxGraph& graph) {
  const int64_t axis = node.dimension("dim");
  const int64_t size = node.sizes("self")[axis];
  const int64_t length = node.output_sizes()[axis];
  const int64_t from = std::max<int64_t>(start < 0 ? start + size : start, 0);
  const int64_t end = std::min(from + length * step, size);
  Value* const self = node.value("self");
  Value* const starts = graph.integers({start});
  Value* const ends = graph.integers({end});
  Value* const axes = graph.integers({axis});
  Value* const steps = graph.integers({step});
  return {graph.op("Slice", {self, starts, ends, axes, steps})};
}

}  // namespace

Values slice(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"end"});
  const int64_t start = node.has("start") ? node.integer("start") : 0;
  return slice_from(start, node.integer("step"), node, graph);
}

Values narrow(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"length"});
  return slice_from(node.integer("start"), /*step=*/1, node, graph);
}

// `split`, `split_with_sizes` and `chunk`. ONNX's Split divides evenly or by
// the lengths of all parts, which the results in the trace have.
Values split(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"split_size", "split_sizes", "chunks"});
  const int64_t axis = node.dimension("dim");
  Integers lengths;
  for (const Value* part : node.outputs()) {
    lengths.push_back(sizes_of(part)[axis]);
  }
  Value* const self = node.value("self");
  return graph.op_with_outputs(
      lengths.size(),
      "Split",
      {self, graph.integers(lengths)},
      {{"axis", axis}});
}

// Windows of the last dimension, which become a new one: [..., windows, size].
Values unfold(AtenNode& node, OnnxGraph& graph) {
  const Integers sizes = node.sizes("self");
  if (node.dimension("dimension") + 1 != std::ssize(sizes)) {
    refuse("it has another dimension; expected the last one. Permute before");
  }
  const torch::Tensor windows =
      torch::arange(sizes.back())
          .unfold(0, node.integer("size"), node.integer("step"));
  Value* const indices = graph.constant(windows);
  return {graph.op("Gather", {node.value("self"), indices}, {{"axis", -1}})};
}

// ---- Joins, shifts and padding ----

Values cat(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "Concat",
      node.values("tensors"),
      {{"axis", node.integer("dim")}})};
}

// ONNX has no Roll: a Gather for each dimension.
Values roll(AtenNode& node, OnnxGraph& graph) {
  const Integers shifts = node.integers("shifts");
  const Integers dims = node.integers("dims");
  const Integers sizes = node.sizes("self");
  if (dims.empty()) refuse("it has no dims; expected those that it rolls");
  Value* x = node.value("self");
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = sizes[(dims[i] + sizes.size()) % sizes.size()];
    const torch::Tensor places = torch::arange(size).roll(shifts[i]);
    x = graph.op("Gather", {x, graph.constant(places)}, {{"axis", dims[i]}});
  }
  return {x};
}

namespace {

// PyTorch has a beginning and an end for each dimension, from the last one
// backwards, and may leave out the first dimensions. ONNX has the beginnings
// of all dimensions in their order, then the ends.
Value* onnx_pads(const Integers& padding, AtenNode& node, OnnxGraph& graph) {
  const int64_t rank = node.rank("self");
  Integers pads(2 * rank, 0);
  for (int64_t i = 0; i < std::ssize(padding); i += 2) {
    const int64_t dimension = rank - 1 - i / 2;
    pads[dimension] = padding[i];
    pads[rank + dimension] = padding[i + 1];
  }
  return graph.integers(pads);
}

}  // namespace

Values constant_pad_nd(AtenNode& node, OnnxGraph& graph) {
  Value* const number = node.value("value", node.type("self"));
  Value* const self = node.value("self");
  return {graph.op(
      "Pad",
      {self, onnx_pads(node.integers("pad"), node, graph), number},
      {{"mode", "constant"}})};
}

Values reflection_pad2d(AtenNode& node, OnnxGraph& graph) {
  Value* const self = node.value("self");
  return {graph.op(
      "Pad",
      {self, onnx_pads(node.integers("padding"), node, graph)},
      {{"mode", "reflect"}})};
}

Values replication_pad2d(AtenNode& node, OnnxGraph& graph) {
  Value* const self = node.value("self");
  return {graph.op(
      "Pad",
      {self, onnx_pads(node.integers("padding"), node, graph)},
      {{"mode", "edge"}})};
}

// ---- New tensors ----

// `zeros_like`, `new_zeros`, and `empty_like`, whose numbers are replaced.
Values zeros(AtenNode& node, OnnxGraph& graph) {
  return filled_like_output(0, node, graph);
}

// `ones_like` and `new_ones`.
Values ones(AtenNode& node, OnnxGraph& graph) {
  return filled_like_output(1, node, graph);
}

// Of the tensor, only the shape and type count.
Values fill(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"self"});
  Value* const value = node.value("value", node.output_type());
  return {graph.op("Expand", {value, graph.integers(node.output_sizes())})};
}

}  // namespace tern::onnx
