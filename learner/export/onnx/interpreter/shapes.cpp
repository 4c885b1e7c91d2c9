// Views, slices, joins, padding, and tensors created from sizes.
#include <algorithm>
#include <numeric>

#include <torch/csrc/jit/ir/ir.h>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

// ---- Views ----

// 0 keeps the input's size, and -1 is inferred.
std::vector<Tensor> reshape(const Operation& op) {
  const Tensor& x = op.input();
  Integers shape = op.integers(1);
  for (int64_t i = 0; i < std::ssize(shape); ++i) {
    if (shape[i] != 0 || op.integer("allowzero", 0) == 1) continue;
    TERN_CHECK_VALUE(i < x.dim(), "its shape has a 0 beyond the input's rank");
    shape[i] = x.size(i);
  }
  return {x.reshape(shape)};
}

std::vector<Tensor> flatten(const Operation& op) {
  const Tensor& x = op.input();
  const int64_t rank = x.dim(), axis = op.integer("axis", 1);
  TERN_CHECK_VALUE(
      -rank <= axis && axis <= rank,
      "its axis is {}; expected one of {}",
      axis,
      rank);
  int64_t rows = 1;
  for (int64_t i = 0; i < (axis < 0 ? axis + rank : axis); ++i) {
    rows *= x.size(i);
  }
  return {x.reshape({rows, rows == 0 ? 0 : x.numel() / rows})};
}

std::vector<Tensor> squeeze(const Operation& op) {
  const Tensor& x = op.input();
  Integers axes = op.has(1) ? op.integers(1) : Integers();
  for (int64_t i = 0; !op.has(1) && i < x.dim(); ++i) {
    if (x.size(i) == 1) axes.push_back(i);
  }
  for (int64_t& axis : axes) {
    axis = from_front(axis, x.dim());
    TERN_CHECK_VALUE(
        x.size(axis) == 1,
        "its dimension {} has {} elements; expected one",
        axis,
        x.size(axis));
  }
  return {x.squeeze(axes)};
}

// The axes refer to the result.
std::vector<Tensor> unsqueeze(const Operation& op) {
  Tensor x = op.input();
  Integers axes = op.integers(1);
  const int64_t rank = x.dim() + std::ssize(axes);
  for (int64_t& axis : axes) axis = from_front(axis, rank);
  std::ranges::sort(axes);
  for (const int64_t axis : axes) x = x.unsqueeze(axis);
  return {x};
}

std::vector<Tensor> transpose(const Operation& op) {
  const Tensor& x = op.input();
  Integers order = op.list("perm");
  if (order.empty()) {
    order.resize(x.dim());
    std::iota(order.rbegin(), order.rend(), 0);
  }
  return {x.permute(order)};
}

std::vector<Tensor> expand(const Operation& op) {
  const Tensor& x = op.input();
  const Integers shape = op.integers(1);
  return {x.expand(at::infer_size(x.sizes(), shape))};
}

void add_views(ComputeTable& table) {
  table["Reshape"] = reshape;
  table["Flatten"] = flatten;
  table["Squeeze"] = squeeze;
  table["Unsqueeze"] = unsqueeze;
  table["Transpose"] = transpose;
  table["Expand"] = expand;
  table["Tile"] = [](const Operation& op) -> std::vector<Tensor> {
    const Integers times = op.integers(1);
    TERN_CHECK_VALUE(
        std::ssize(times) == op.input().dim(),
        "it repeats {} dimensions; expected {}",
        times.size(),
        op.input().dim());
    return {op.input().repeat(times)};
  };
}

// ---- Parts and joins ----

// As in NumPy, limits beyond the ends are clipped.
std::vector<Tensor> slice(const Operation& op) {
  Tensor x = op.input();
  const Integers starts = op.integers(1), ends = op.integers(2);
  Integers axes(starts.size()), steps(starts.size(), 1);
  std::iota(axes.begin(), axes.end(), 0);
  if (op.has(3)) axes = op.integers(3);
  if (op.has(4)) steps = op.integers(4);
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = from_front(axes.at(i), x.dim()), size = x.size(axis);
    const int64_t step = steps.at(i);
    TERN_CHECK_VALUE(
        step != 0,
        "its step is 0; expected a number other than 0");
    // With a negative step, the end may be before the first element.
    const int64_t lowest = step < 0 ? -1 : 0;
    const int64_t highest = step < 0 ? size - 1 : size;
    const auto clamped = [&](int64_t place, int64_t least) {
      return std::clamp(place < 0 ? place + size : place, least, highest);
    };
    const int64_t start = clamped(starts[i], std::min<int64_t>(0, highest));
    const int64_t end = clamped(ends.at(i), lowest);
    if (step > 0) {
      x = x.slice(axis, start, std::max(start, end), step);
    } else {
      const Tensor places = torch::arange(start, std::min(start, end), step);
      x = x.index_select(axis, places);
    }
  }
  return {x};
}

std::vector<Tensor> split(const Operation& op) {
  const Tensor& x = op.input();
  const int64_t axis = op.axis(0);
  const auto count = static_cast<int64_t>(op.output_count());
  Integers lengths(count, x.size(axis) / count);
  if (op.has(1)) lengths = op.integers(1);
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), 0L);
  TERN_CHECK_VALUE(
      std::ssize(lengths) == count && sum == x.size(axis),
      "it splits {} into {} parts of {} in total; expected the whole dimension "
      "in {} parts",
      x.size(axis),
      lengths.size(),
      sum,
      count);
  return x.split_with_sizes(lengths, axis);
}

std::vector<Tensor> concat(const Operation& op) {
  op.require_one_type();
  const int64_t axis = op.axis(0);
  for (const Tensor& x : op.inputs()) {
    TERN_CHECK_VALUE(
        x.dim() == op.input().dim(),
        "it joins {} and {} dimensions; expected the same number of dimensions",
        op.input().dim(),
        x.dim());
  }
  return {torch::cat(op.inputs(), axis)};
}

// Returns the index before padding for each padded position: reflected, or the
// nearest.
Tensor padded_places(
    int64_t size,
    int64_t begin,
    int64_t end,
    const std::string& mode) {
  const Tensor places = torch::arange(-begin, size + end);
  if (mode == "edge") return places.clamp(0, size - 1);
  TERN_CHECK_VALUE(
      mode == "reflect" && begin < size && end < size,
      "its mode is {} with {} and {} of {}; expected constant, edge, or "
      "reflect with less padding",
      mode,
      begin,
      end,
      size);
  return size - 1 - (size - 1 - places.abs()).abs();
}

std::vector<Tensor> pad(const Operation& op) {
  Tensor x = op.input();
  const int64_t rank = x.dim();
  const Integers pads = op.integers(1);
  TERN_CHECK_VALUE(
      std::ssize(pads) == 2 * rank,
      "it has {} pads; expected two for each of {} dimensions",
      pads.size(),
      rank);
  const std::string mode = op.text("mode", "constant");
  if (mode != "constant") {
    for (int64_t i = 0; i < rank; ++i) {
      const int64_t begin = pads[i], end = pads[rank + i];
      if (begin == 0 && end == 0) continue;
      x = x.index_select(i, padded_places(x.size(i), begin, end, mode));
    }
    return {x};
  }
  Tensor number = torch::zeros({}, x.options());
  if (op.has(2)) number = op.input(2);
  TERN_CHECK_VALUE(
      number.scalar_type() == x.scalar_type() && number.numel() == 1,
      "it pads {} with {} numbers of {}; expected one number of the same type",
      torch::toString(x.scalar_type()),
      number.numel(),
      torch::toString(number.scalar_type()));
  // LibTorch starts with the last dimension.
  Integers backwards;
  for (int64_t i = rank; i-- > 0;) {
    backwards.push_back(pads[i]);
    backwards.push_back(pads[rank + i]);
  }
  return {torch::constant_pad_nd(x, backwards, number.item())};
}

void add_parts(ComputeTable& table) {
  table["Slice"] = slice;
  table["Split"] = split;
  table["Concat"] = concat;
  table["Pad"] = pad;
  table["Trilu"] = [](const Operation& op) -> std::vector<Tensor> {
    const int64_t k = op.has(1) ? op.input(1).item<int64_t>() : 0;
    return {
        op.integer("upper", 1) == 1 ? op.input().triu(k) : op.input().tril(k)};
  };
}

// ---- New tensors ----

std::vector<Tensor> shape_of(const Operation& op) {
  const Integers sizes = op.input().sizes().vec();
  const int64_t rank = std::ssize(sizes);
  const auto place = [&](const char* name, int64_t usual) {
    const int64_t given = op.integer(name, usual);
    return std::clamp<int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  const int64_t start = place("start", 0), end = place("end", rank);
  return {torch::tensor(sizes).slice(0, start, std::max(start, end))};
}

std::vector<Tensor> range(const Operation& op) {
  op.require_one_type();
  const Tensor &start = op.numbers(0), &limit = op.numbers(1),
               &step = op.numbers(2);
  return {torch::arange(start.item(), limit.item(), step.item())
              .to(start.scalar_type())};
}

std::vector<Tensor> eye_like(const Operation& op) {
  const Tensor& x = op.numbers();
  const int64_t rows = x.size(0), columns = x.size(1), k = op.integer("k", 0);
  return {(torch::arange(rows).unsqueeze(1) + k == torch::arange(columns))
              .to(x.scalar_type())};
}

void add_new(ComputeTable& table) {
  table["Shape"] = shape_of;
  table["Size"] = [](const Operation& op) -> std::vector<Tensor> {
    return {torch::tensor(op.input().numel())};
  };
  table["Range"] = range;
  table["EyeLike"] = eye_like;
  table["Constant"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.tensor("value")};
  };
  table["ConstantOfShape"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.tensor("value").reshape({}).expand(op.integers(0)).clone()};
  };
}

}  // namespace

void add_shapes(ComputeTable& table) {
  add_views(table);
  add_parts(table);
  add_new(table);
}

}  // namespace tern::onnx
