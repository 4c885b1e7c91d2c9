// Sums, means, extremes, vector norms, variances and the softmax over
// dimensions.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch reduces all dimensions if `dim` is missing, None or empty; ONNX does
// the same without axes.
struct Axes {
  Integers axes;
  bool keepdim = false;
};

Axes axes_of(AtenNode& node) {
  const Integers axes = node.integers("dim");
  return {axes, node.flag("keepdim")};
}

Values sum(AtenNode& node, OnnxGraph&) {
  node.ignore({"dtype"});  // equals the result's
  const auto [axes, keepdim] = axes_of(node);
  return term::sum(node.term("self", node.output_type()), axes, keepdim);
}

Values mean(AtenNode& node, OnnxGraph&) {
  node.ignore({"dtype"});
  const auto [axes, keepdim] = axes_of(node);
  return term::mean(node.term("self", node.output_type()), axes, keepdim);
}

Values prod(AtenNode& node, OnnxGraph&) {
  node.ignore({"dtype"});
  const auto [axes, keepdim] = axes_of(node);
  const Term x = node.term("self", node.output_type());
  return term::reduce("ReduceProd", x, axes, keepdim);
}

Values amax(AtenNode& node, OnnxGraph&) {
  const auto [axes, keepdim] = axes_of(node);
  return term::reduce("ReduceMax", node.term("self"), axes, keepdim);
}

Values amin(AtenNode& node, OnnxGraph&) {
  const auto [axes, keepdim] = axes_of(node);
  return term::reduce("ReduceMin", node.term("self"), axes, keepdim);
}

// The result is bool, also for numbers.
Operator truth(const char* type) {
  return [type](AtenNode& node, OnnxGraph&) -> Values {
    const auto [axes, keepdim] = axes_of(node);
    const Term is_true = node.term("self", torch::kBool);
    return term::reduce(type, is_true, axes, keepdim).to(node.output_type());
  };
}

// ---- Places of extremes ----

// ONNX Runtime has no ArgMax for int64, so this takes the first of a sorted
// list.
Term place_of_extreme(const Term& x, int64_t axis, bool is_max, bool keepdim) {
  OnnxGraph& graph = x.graph();
  if (x.type() != torch::kLong) {
    const Term numbers = x.is_float() ? x : x.to(torch::kInt);
    Value* const place = graph.op(
        is_max ? "ArgMax" : "ArgMin",
        {numbers.value()},
        {{"axis", axis}, {"keepdims", keepdim}});
    return {graph, place, torch::kLong};
  }
  const Values first = graph.op_with_outputs(
      2,
      "TopK",
      {x.value(), graph.integers({1})},
      {{"axis", axis}, {"largest", is_max}});
  const Term place(graph, first[1], torch::kLong);
  return keepdim ? place : term::squeeze(place, axis);
}

// Without `dim`, PyTorch returns an index into the flattened tensor.
Values places(AtenNode& node, OnnxGraph&, bool is_max) {
  const Term x = node.term("self");
  const bool keepdim = node.flag("keepdim");
  if (node.has("dim")) {
    const int64_t axis = node.rank("self") == 0 ? 0 : node.dimension("dim");
    if (node.rank("self") > 0) {
      return place_of_extreme(x, axis, is_max, keepdim);
    }
  }
  const Term flat = x.op_with("Reshape", {x.graph().integers({-1})});
  const Term place = place_of_extreme(flat, 0, is_max, /*keepdim=*/false);
  return term::reshape(place, node.output_sizes());
}

Values argmax(AtenNode& node, OnnxGraph& graph) {
  return places(node, graph, /*is_max=*/true);
}

Values argmin(AtenNode& node, OnnxGraph& graph) {
  return places(node, graph, /*is_max=*/false);
}

// Extremes of two tensors, of one tensor, or of a dimension with indices.
Values extremes(AtenNode& node, OnnxGraph&, bool is_max) {
  if (node.has("other")) {
    const torch::ScalarType type = node.output_type();
    const Term self = node.term("self", type);
    const Term other = node.term("other", type);
    return is_max ? term::max(self, other) : term::min(self, other);
  }
  const char* const type = is_max ? "ReduceMax" : "ReduceMin";
  const Term x = node.term("self");
  if (!node.has("dim")) return term::reduce(type, x, {}, /*keepdim=*/false);
  const int64_t axis = node.dimension("dim");
  const bool keepdim = node.flag("keepdim");
  const Term numbers = term::reduce(type, x, {axis}, keepdim);
  return {numbers.value(), place_of_extreme(x, axis, is_max, keepdim).value()};
}

Values max(AtenNode& node, OnnxGraph& graph) {
  return extremes(node, graph, /*is_max=*/true);
}

Values min(AtenNode& node, OnnxGraph& graph) {
  return extremes(node, graph, /*is_max=*/false);
}

// ---- Norms ----

Term norm_of(const Term& x, double p, const Axes& over) {
  const auto& [axes, keepdim] = over;
  const double infinity = std::numeric_limits<double>::infinity();
  if (p == 1) return term::reduce("ReduceL1", x, axes, keepdim);
  if (p == 2) return term::reduce("ReduceL2", x, axes, keepdim);
  const Term size = term::abs(x);
  if (p == infinity) return term::reduce("ReduceMax", size, axes, keepdim);
  if (p == -infinity) return term::reduce("ReduceMin", size, axes, keepdim);
  if (p == 0) return term::sum((x != 0).to(x.type()), axes, keepdim);
  const Term sum = term::sum(term::pow(size, x.number(p)), axes, keepdim);
  return term::pow(sum, x.number(1 / p));
}

Values norm(AtenNode& node, OnnxGraph&) {
  node.ignore({"dtype"});
  const double p = node.has("p") ? node.number("p") : 2;
  return norm_of(node.term("self", node.output_type()), p, axes_of(node));
}

Values vector_norm(AtenNode& node, OnnxGraph&) {
  node.ignore({"dtype"});
  const double p = node.number("ord");
  return norm_of(node.term("self", node.output_type()), p, axes_of(node));
}

// The dot product divided by both lengths, each of which is at least eps.
Values cosine_similarity(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term a = node.term("x1", type), b = node.term("x2", type);
  const Axes over{{node.integer("dim")}, false};
  const Term least = a.number(node.number("eps"));
  const Term both = term::max(norm_of(a, 2, over), least) *
                    term::max(norm_of(b, 2, over), least);
  return term::sum(a * b, over.axes, false) / both;
}

// For integers, the difference is an integer too.
Values pairwise_distance(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.common_type({"x1", "x2"});
  const Term a = node.term("x1", type), b = node.term("x2", type);
  const Term difference = (a - b).to(node.output_type()) + node.number("eps");
  const bool keepdim = node.flag("keepdim");
  return norm_of(difference, node.number("p"), {{-1}, keepdim});
}

// ---- Variances ----

struct Moments {
  Term mean;
  Term variance;
};

// Divides by the number of elements minus `correction`, by default 1.
Moments moments(AtenNode& node, OnnxGraph& graph) {
  const Term x = node.term("self");
  const auto [dim, keepdim] = axes_of(node);
  double correction = 1;
  if (node.has("unbiased")) correction = node.flag("unbiased") ? 1 : 0;
  if (node.has("correction")) correction = node.number("correction");
  const Integers sizes = node.sizes("self");
  Integers axes = dim;
  for (int64_t i = 0; dim.empty() && i < std::ssize(sizes); ++i) {
    axes.push_back(i);
  }
  Integers counted;
  for (int64_t& axis : axes) {
    axis += axis < 0 ? std::ssize(sizes) : 0;
    counted.push_back(sizes[axis]);
  }
  const Term center = term::mean(x, axes, /*keepdim=*/true);
  const Term distance = x - center;
  const Term mean = term::mean(x, axes, keepdim);
  const Term biased = term::mean(distance * distance, axes, keepdim);
  if (correction == 0) return {mean, biased};
  if (!graph.differ(counted)) {
    double count = 1;
    for (const int64_t size : counted) count *= static_cast<double>(size);
    const double divisor = std::max(count - correction, 0.0);
    return {mean, biased * (count / divisor)};
  }
  Value* const all = graph.sizes_at(x.value(), axes);
  const Term count = term::reduce(
                         "ReduceProd",
                         Term(graph, all, torch::kLong),
                         {},
                         /*keepdim=*/false)
                         .to(x.type());
  const Term divisor = term::max(count - correction, x.number(0));
  return {mean, biased * (count / divisor)};
}

Values var(AtenNode& node, OnnxGraph& graph) {
  return moments(node, graph).variance;
}

Values std_of(AtenNode& node, OnnxGraph& graph) {
  return term::sqrt(moments(node, graph).variance);
}

Values var_mean(AtenNode& node, OnnxGraph& graph) {
  const Moments both = moments(node, graph);
  return {both.variance.value(), both.mean.value()};
}

Values std_mean(AtenNode& node, OnnxGraph& graph) {
  const Moments both = moments(node, graph);
  return {term::sqrt(both.variance).value(), both.mean.value()};
}

// ---- Softmax and sums of parts ----

// `dtype` is the type of the result, in which PyTorch computes.
Operator softmax(const char* type) {
  return [type](AtenNode& node, OnnxGraph&) -> Values {
    node.ignore({"dtype", "half_to_float"});
    const Term x = node.term("self", node.output_type());
    return x.op(type, {}, {{"axis", node.integer("dim")}});
  };
}

Values logsumexp(AtenNode& node, OnnxGraph&) {
  const auto [axes, keepdim] = axes_of(node);
  const Term x = node.term("self", node.output_type());
  return term::reduce("ReduceLogSumExp", x, axes, keepdim);
}

Values cumsum(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"dtype"});
  const Term x = node.term("self", node.output_type());
  Value* const axis =
      graph.constant(torch::scalar_tensor(node.integer("dim"), torch::kLong));
  return x.op_with("CumSum", {axis});
}

}  // namespace

OperatorTable reductions() {
  return {
      {"aten::_log_softmax", softmax("LogSoftmax")},
      {"aten::_softmax", softmax("Softmax")},
      {"aten::all", truth("ReduceMin")},
      {"aten::amax", amax},
      {"aten::amin", amin},
      {"aten::any", truth("ReduceMax")},
      {"aten::argmax", argmax},
      {"aten::argmin", argmin},
      {"aten::cosine_similarity", cosine_similarity},
      {"aten::cumsum", cumsum},
      {"aten::linalg_vector_norm", vector_norm},
      {"aten::log_softmax", softmax("LogSoftmax")},
      {"aten::logsumexp", logsumexp},
      {"aten::max", max},
      {"aten::mean", mean},
      {"aten::min", min},
      {"aten::norm", norm},
      {"aten::pairwise_distance", pairwise_distance},
      {"aten::prod", prod},
      {"aten::softmax", softmax("Softmax")},
      {"aten::std", std_of},
      {"aten::std_mean", std_mean},
      {"aten::sum", sum},
      {"aten::var", var},
      {"aten::var_mean", var_mean},
  };
}

}  // namespace tern::onnx
