// Views, permutations, slices and concatenations.
#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// ---- Views ----

// ONNX's Reshape needs all sizes; they are the sizes of the result in the
// trace.
Operator view(std::initializer_list<std::string_view> arguments) {
  return [names = std::vector<std::string_view>(
              arguments)](AtenNode& node, OnnxGraph& graph) -> Values {
    for (const std::string_view name : names) node.ignore({name});
    Value* const self = node.value("self");
    return {
        graph.op("Reshape", {self, graph.shape_to_infer(node.output_sizes())})};
  };
}

Values unsqueeze(AtenNode& node, OnnxGraph& graph) {
  Value* const self = node.value("self");
  return {graph.op("Unsqueeze", {self, graph.integers(node.integers("dim"))})};
}

// ONNX has no -1 for a size that does not change.
Values expand(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"size", "other", "implicit"});
  Value* const self = node.value("self");
  const Integers sizes = node.sizes("self"), wanted = node.output_sizes();
  Value* const shape = graph.integers(wanted);
  const bool is_known = !graph.differ(sizes) && !graph.differ(wanted);
  if (is_known && sizes == wanted) return {self};
  return {graph.op("Expand", {self, shape})};
}

// `repeat` and `tile`. New dimensions come first.
Values repeat(AtenNode& node, OnnxGraph& graph) {
  Integers times = node.integers(node.has("repeats") ? "repeats" : "dims");
  const int64_t rank = node.rank("self");
  while (std::ssize(times) < rank) times.insert(times.begin(), 1);
  Value* x = node.value("self");
  if (std::ssize(times) > rank) {
    Integers axes(std::ssize(times) - rank);
    std::iota(axes.begin(), axes.end(), 0);
    x = graph.op("Unsqueeze", {x, graph.integers(axes)});
  }
  return {graph.op("Tile", {x, graph.integers(times)})};
}

// Repeats each element several times in a row. Without `dim`, flattens the
// tensor first.
Values repeat_interleave(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"output_size"});
  const int64_t times = node.integer("repeats");
  Term x = node.term("self");
  int64_t rank = node.rank("self"), axis = 0;
  if (node.has("dim")) {
    axis = node.dimension("dim");
  } else {
    x = x.op_with("Reshape", {graph.integers({-1})});
    rank = 1;
  }
  Integers tiles(rank + 1, 1);
  tiles[axis + 1] = times;
  const Term repeated =
      term::unsqueeze(x, axis + 1).op_with("Tile", {graph.integers(tiles)});
  return term::reshape(repeated, node.output_sizes());
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

// `t` and `mT`; `t` does not change a vector.
Values transpose_matrix(AtenNode& node, OnnxGraph& graph) {
  const int64_t rank = node.rank("self");
  Value* const self = node.value("self");
  if (rank < 2) return {self};
  return {graph.swap_dimensions(self, rank, rank - 2, rank - 1)};
}

Values reverse_dimensions(AtenNode& node, OnnxGraph& graph) {
  Integers order(node.rank("self"));
  std::iota(order.rbegin(), order.rend(), 0);
  return {graph.op("Transpose", {node.value("self")}, {{"perm", order}})};
}

// PyTorch computes the order, from a tensor whose sizes are the numbers of its
// dimensions.
Values movedim(AtenNode& node, OnnxGraph& graph) {
  Integers numbers(node.rank("self"));
  std::iota(numbers.begin(), numbers.end(), 0);
  const Integers order =
      torch::empty(numbers)
          .movedim(node.integers("source"), node.integers("destination"))
          .sizes()
          .vec();
  return {graph.op("Transpose", {node.value("self")}, {{"perm", order}})};
}

// ---- Parts ----

// Uses the length of the result in the trace, so that a slice to the end of a
// dynamic dimension also works for other sizes.
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

Values slice(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"end"});
  const int64_t start = node.has("start") ? node.integer("start") : 0;
  return slice_from(start, node.integer("step"), node, graph);
}

Values narrow(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"length"});
  return slice_from(node.integer("start"), /*step=*/1, node, graph);
}

// `split`, `split_with_sizes` and `chunk`. ONNX's Split takes the lengths of
// all parts, which are the lengths of the results in the trace.
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

// Windows of the last dimension, in a new last dimension: [..., windows, size].
Values unfold(AtenNode& node, OnnxGraph& graph) {
  const Integers sizes = node.sizes("self");
  if (node.dimension("dimension") + 1 != std::ssize(sizes)) {
    refuse(
        "its dimension is not the last one; expected the last dimension. "
        "Transpose before it");
  }
  const torch::Tensor windows =
      torch::arange(sizes.back())
          .unfold(0, node.integer("size"), node.integer("step"));
  Value* const indices = graph.constant(windows);
  return {graph.op("Gather", {node.value("self"), indices}, {{"axis", -1}})};
}

// Parts of length 1, with the dimension removed.
Values unbind(AtenNode& node, OnnxGraph& graph) {
  const int64_t axis = node.dimension("dim");
  Values parts = graph.op_with_outputs(
      node.outputs().size(),
      "Split",
      {node.value("self"), graph.integers(Integers(node.outputs().size(), 1))},
      {{"axis", axis}});
  for (Value*& x : parts) {
    x = graph.op("Squeeze", {x, graph.integers({axis})});
  }
  return parts;
}

// ---- Joins, shifts and triangles ----

// PyTorch casts all tensors to the type of the result.
Values cat(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "Concat",
      node.values("tensors", node.output_type()),
      {{"axis", node.integer("dim")}})};
}

Values stack(AtenNode& node, OnnxGraph& graph) {
  const int64_t given = node.integer("dim");
  const int64_t axis =
      given < 0 ? given + std::ssize(node.output_sizes()) : given;
  Values tensors = node.values("tensors", node.output_type());
  for (Value*& x : tensors) {
    x = graph.op("Unsqueeze", {x, graph.integers({axis})});
  }
  return {graph.op("Concat", tensors, {{"axis", axis}})};
}

// ONNX has no Roll: joins the parts before and after the split in reverse
// order.
Term rolled(const Term& x, int64_t shift, int64_t axis, int64_t size) {
  const int64_t places = size == 0 ? 0 : shift % size;
  if (places == 0) return x;
  OnnxGraph& graph = x.graph();
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  const auto part = [&](int64_t start, int64_t end) {
    return x
        .op_with(
            "Slice",
            {graph.integers({start}),
             graph.integers({end}),
             graph.integers({axis})})
        .value();
  };
  Value* const last = part(-places, kEnd);
  Value* const first = part(0, -places);
  return {graph, graph.op("Concat", {last, first}, {{"axis", axis}}), x.type()};
}

// Without `dims`, flattens the tensor first.
Values roll(AtenNode& node, OnnxGraph& graph) {
  const Integers shifts = node.integers("shifts");
  const Integers dims = node.integers("dims");
  const Integers sizes = node.sizes("self");
  Term x = node.term("self");
  if (dims.empty()) {
    const Term flat = x.op_with("Reshape", {graph.integers({-1})});
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return term::reshape(rolled(flat, shifts[0], 0, count), sizes);
  }
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t axis = dims[i] < 0 ? dims[i] + std::ssize(sizes) : dims[i];
    x = rolled(x, shifts[i], axis, sizes[axis]);
  }
  return x;
}

// Reverses the order of elements.
Values flip(AtenNode& node, OnnxGraph& graph) {
  const Integers axes = node.integers("dims");
  Value* const self = node.value("self");
  if (axes.empty()) return {self};
  constexpr int64_t kBeforeTheFirst = std::numeric_limits<int64_t>::min();
  const Integers last(axes.size(), -1), ends(axes.size(), kBeforeTheFirst);
  Value* const starts = graph.integers(last);
  Value* const stops = graph.integers(ends);
  Value* const dims = graph.integers(axes);
  Value* const steps = graph.integers(last);
  return {graph.op("Slice", {self, starts, stops, dims, steps})};
}

Operator triangle(bool is_upper) {
  return [is_upper](AtenNode& node, OnnxGraph& graph) -> Values {
    const Term x = node.term("self");
    const int64_t diagonal = node.integer("diagonal");
    Value* const k =
        graph.constant(torch::scalar_tensor(diagonal, torch::kLong));
    const bool is_known = x.is_float() || x.type() == torch::kLong;
    return x.to(is_known ? x.type() : torch::kLong)
        .op_with("Trilu", {k}, {{"upper", is_upper}})
        .to(x.type());
  };
}

}  // namespace

OperatorTable shapes() {
  return {
      {"aten::cat", cat},
      {"aten::chunk", split},
      {"aten::expand", expand},
      {"aten::expand_as", expand},
      {"aten::flatten", view({"start_dim", "end_dim"})},
      {"aten::flip", flip},
      {"aten::mT", transpose_matrix},
      {"aten::movedim", movedim},
      {"aten::narrow", narrow},
      {"aten::numpy_T", reverse_dimensions},
      {"aten::permute", permute},
      {"aten::ravel", view({})},
      {"aten::repeat", repeat},
      {"aten::repeat_interleave", repeat_interleave},
      {"aten::reshape", view({"shape"})},
      {"aten::reshape_as", view({"other"})},
      {"aten::roll", roll},
      {"aten::slice", slice},
      {"aten::split", split},
      {"aten::split_with_sizes", split},
      // PyTorch ignores a dimension that is not 1; ONNX rejects it.
      {"aten::squeeze", view({"dim"})},
      {"aten::stack", stack},
      {"aten::t", transpose_matrix},
      {"aten::tile", repeat},
      {"aten::transpose", transpose},
      {"aten::tril", triangle(/*is_upper=*/false)},
      {"aten::triu", triangle(/*is_upper=*/true)},
      {"aten::unbind", unbind},
      {"aten::unflatten", view({"dim", "sizes"})},
      {"aten::unfold", unfold},
      {"aten::unsafe_chunk", split},
      {"aten::unsafe_split", split},
      {"aten::unsqueeze", unsqueeze},
      {"aten::view", view({"size"})},
      {"aten::view_as", view({"other"})},
  };
}

}  // namespace tern::onnx
