// Sums, means, extremes, sorting and softmax over dimensions.
#include <numeric>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

// Returns the axes to reduce, counted from the front; all axes if none are
// given. In opset 17 only ReduceSum has the axes as an input.
Integers axes_of(const Operation& op, bool is_input) {
  Integers axes = !is_input   ? op.list("axes")
                  : op.has(1) ? op.integers(1)
                              : Integers();
  const int64_t rank = op.input().dim();
  if (rank == 0) return {};
  if (axes.empty() && op.integer("noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (int64_t& axis : axes) axis = from_front(axis, rank);
  return axes;
}

// Reduces numbers with `function(x, axes)`, which keeps the reduced dimensions
// with size 1. They are removed here if keepdims is 0.
template <typename Function>
Compute reduction(Function function, bool has_axes_as_input = false) {
  return [=](const Operation& op) -> std::vector<Tensor> {
    const Tensor& x = op.numbers();
    const Integers axes = axes_of(op, has_axes_as_input);
    if (axes.empty()) return {x.dim() == 0 ? function(x, axes) : x};
    Tensor result = function(x, axes).to(x.scalar_type());
    if (op.integer("keepdims", 1) == 1) return {result};
    return {result.squeeze(axes)};
  };
}

Tensor sum_over(const Tensor& x, const Integers& axes) {
  return x.dim() == 0 ? x : x.sum(axes, /*keepdim=*/true);
}

// Also for integers, whose mean is truncated.
Tensor mean_over(const Tensor& x, const Integers& axes) {
  if (x.dim() == 0) return x;
  return (x.is_floating_point() ? x : x.to(torch::kDouble))
      .mean(axes, /*keepdim=*/true);
}

Tensor product_over(Tensor x, const Integers& axes) {
  for (const int64_t axis : axes) x = x.prod(axis, /*keepdim=*/true);
  return x;
}

void add_sums(ComputeTable& table) {
  using X = const Tensor&;
  using Axes = const Integers&;
  table["ReduceSum"] = reduction(sum_over, /*has_axes_as_input=*/true);
  table["ReduceMean"] = reduction(mean_over);
  table["ReduceProd"] = reduction(product_over);
  table["ReduceMax"] = reduction(
      [](X x, Axes axes) { return x.dim() == 0 ? x : x.amax(axes, true); });
  table["ReduceMin"] = reduction(
      [](X x, Axes axes) { return x.dim() == 0 ? x : x.amin(axes, true); });
  table["ReduceL1"] =
      reduction([](X x, Axes axes) { return sum_over(x.abs(), axes); });
  table["ReduceL2"] =
      reduction([](X x, Axes axes) { return sum_over(x * x, axes).sqrt(); });
  table["ReduceSumSquare"] =
      reduction([](X x, Axes axes) { return sum_over(x * x, axes); });
  table["ReduceLogSum"] =
      reduction([](X x, Axes axes) { return sum_over(x, axes).log(); });
  table["ReduceLogSumExp"] = reduction([](X x, Axes axes) {
    return x.dim() == 0 ? x : x.logsumexp(axes, /*keepdim=*/true);
  });
}

// Returns the first or the last index of the extreme.
Tensor place_of_extreme(const Operation& op, bool is_largest) {
  const int64_t axis = op.axis(0);
  const bool is_last = op.integer("select_last_index", 0) == 1;
  Tensor x = op.numbers();
  if (is_last) x = x.flip(axis);
  Tensor place = is_largest ? x.argmax(axis, /*keepdim=*/true)
                            : x.argmin(axis, /*keepdim=*/true);
  if (is_last) place = x.size(axis) - 1 - place;
  return op.integer("keepdims", 1) == 1 ? place : place.squeeze(axis);
}

// Equal numbers keep their order.
std::vector<Tensor> largest_of(const Operation& op) {
  const int64_t axis = op.axis(-1), k = op.integers(1).at(0);
  const auto [numbers, places] = op.numbers().sort(
      /*stable=*/true,
      axis,
      /*descending=*/op.integer("largest", 1) == 1);
  return {numbers.narrow(axis, 0, k), places.narrow(axis, 0, k)};
}

// A row that is all -inf becomes NaN, because of -inf - -inf.
Tensor shifted(const Operation& op) {
  const Tensor& x = op.floats();
  return x - x.amax({op.axis(-1)}, /*keepdim=*/true);
}

std::vector<Tensor> cumulative_sum(const Operation& op) {
  const Tensor &x = op.numbers(), &given = op.places(1);
  TERN_CHECK_VALUE(
      given.numel() == 1,
      "it has {} axes; expected one",
      given.numel());
  const int64_t axis = from_front(given.item<int64_t>(), x.dim());
  const bool is_reverse = op.integer("reverse", 0) == 1;
  const Tensor ordered = is_reverse ? x.flip(axis) : x;
  Tensor sum = ordered.cumsum(axis, x.scalar_type());
  if (op.integer("exclusive", 0) == 1) sum = sum - ordered;
  return {is_reverse ? sum.flip(axis) : sum};
}

}  // namespace

void add_reductions(ComputeTable& table) {
  add_sums(table);
  table["ArgMax"] = [](const Operation& op) -> std::vector<Tensor> {
    return {place_of_extreme(op, /*is_largest=*/true)};
  };
  table["ArgMin"] = [](const Operation& op) -> std::vector<Tensor> {
    return {place_of_extreme(op, /*is_largest=*/false)};
  };
  table["TopK"] = largest_of;
  table["CumSum"] = cumulative_sum;
  table["Softmax"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor x = shifted(op).exp();
    return {x / x.sum({op.axis(-1)}, /*keepdim=*/true)};
  };
  table["LogSoftmax"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor x = shifted(op);
    return {x - x.exp().sum({op.axis(-1)}, /*keepdim=*/true).log()};
  };
  table["Hardmax"] = [](const Operation& op) -> std::vector<Tensor> {
    const int64_t axis = op.axis(-1);
    const Tensor& x = op.floats();
    return {torch::zeros_like(x).scatter(axis, x.argmax(axis, true), 1)};
  };
}

}  // namespace tern::onnx
