// Normalization by statistics of a batch, a sample or a position.
#include <functional>
#include <limits>
#include <numeric>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

Integers channel_shape(int64_t rank) {
  Integers shape(rank, 1);
  shape[1] = -1;
  return shape;
}

// Multiplies by a weight and adds a bias, both of which are optional.
Term scaled(Term x, AtenNode& node, const Integers& shape) {
  const auto of_shape = [&](const char* name) {
    const Term given = node.term(name, x.type());
    if (std::ssize(shape) == node.rank(name)) return given;
    return given.op_with("Reshape", {given.graph().integers(shape)});
  };
  if (node.has("weight")) x = x * of_shape("weight");
  if (node.has("bias")) x = x + of_shape("bias");
  return x;
}

Term weight_or(
    double otherwise,
    const char* name,
    const Integers& shape,
    AtenNode& node,
    OnnxGraph& graph) {
  const torch::ScalarType type = node.type("input");
  if (node.has(name)) return node.term(name, type);
  return {graph, graph.constant(torch::full(shape, otherwise, type)), type};
}

// (x - mean) / sqrt(variance + eps) over these axes, with the biased variance.
Term normalized(const Term& x, const Integers& axes, double eps) {
  const Term distance = x - term::mean(x, axes, /*keepdim=*/true);
  const Term variance = term::mean(distance * distance, axes, /*keepdim=*/true);
  return distance / term::sqrt(variance + eps);
}

Integers last_axes(size_t count) {
  Integers axes(count);
  std::iota(axes.begin(), axes.end(), -std::ssize(axes));
  return axes;
}

Values by_running_statistics(AtenNode& node, OnnxGraph& graph) {
  const Integers channels = {node.sizes("input")[1]};
  Value* const input = node.value("input");
  Value* const weight = weight_or(1, "weight", channels, node, graph).value();
  Value* const bias = weight_or(0, "bias", channels, node, graph).value();
  return {graph.op(
      "BatchNormalization",
      {input,
       weight,
       bias,
       node.value("running_mean", node.type("input")),
       node.value("running_var", node.type("input"))},
      {{"epsilon", node.number("eps")}})};
}

// A BatchNorm that was not folded into a convolution. In training mode, or
// without running statistics, it normalizes with the statistics of the batch,
// over all dimensions except the channels.
Values batch_norm(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"momentum", "cudnn_enabled"});
  if (!node.flag("training")) return by_running_statistics(node, graph);
  node.ignore({"running_mean", "running_var"});
  const int64_t rank = node.rank("input");
  Integers axes = {0};
  for (int64_t i = 2; i < rank; ++i) axes.push_back(i);
  const Term x = normalized(node.term("input"), axes, node.number("eps"));
  return scaled(x, node, channel_shape(rank));
}

Values instance_norm(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"momentum", "cudnn_enabled"});
  if (!node.flag("use_input_stats")) return by_running_statistics(node, graph);
  node.ignore({"running_mean", "running_var"});
  const Integers channels = {node.sizes("input")[1]};
  const Term x = node.term("input");
  const Term weight = weight_or(1, "weight", channels, node, graph);
  const Term bias = weight_or(0, "bias", channels, node, graph);
  return x.op(
      "InstanceNormalization",
      {weight, bias},
      {{"epsilon", node.number("eps")}});
}

// Treats each group of channels as one long channel.
Values group_norm(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"cudnn_enabled"});
  const int64_t groups = node.integer("num_groups");
  const Term x = node.term("input");
  const Term ones(
      graph,
      graph.constant(torch::ones({groups}, x.type())),
      x.type());
  const Term zeros(
      graph,
      graph.constant(torch::zeros({groups}, x.type())),
      x.type());
  const Term grouped = x.op_with("Reshape", {graph.integers({0, groups, -1})});
  const Term normal = grouped.op(
      "InstanceNormalization",
      {ones, zeros},
      {{"epsilon", node.number("eps")}});
  Value* const shape = graph.op("Shape", {x.value()});
  const Term same_shape = normal.op_with("Reshape", {shape});
  return scaled(same_shape, node, channel_shape(node.rank("input")));
}

// Written so that OpenCV 4.6 can read it. OpenCV subtracts means along
// dimension 1, so they need the shape [1, rows, numbers], and also multiplies
// by a weight along dimension 1, which needs [rows, numbers]. It cannot divide
// by a single computed number, so a single row is divided with a matrix
// product.
Term decomposed(const Term& x, double eps, AtenNode& node) {
  const Integers sizes = node.sizes("input");
  const auto product = [](const Integers& numbers) {
    const auto times = std::multiplies<>();
    return std::accumulate(numbers.begin(), numbers.end(), int64_t{1}, times);
  };
  const int64_t length = product(node.integers("normalized_shape"));
  const bool is_one_row = product(sizes) == length;
  OnnxGraph& graph = x.graph();
  const Term rows = x.op_with("Reshape", {graph.integers({1, -1, length})});
  const Term distance = rows - term::mean(rows, {2}, /*keepdim=*/true);
  const Term squares = term::pow(distance, distance.number(2));
  const Term variance = term::mean(squares, {2}, /*keepdim=*/true) + eps;
  const Term y =
      is_one_row
          ? term::matmul(term::pow(variance, rows.number(-0.5)), distance)
          : distance / term::sqrt(variance);
  const Term flat = y.op_with("Reshape", {graph.integers({-1, length})});
  return term::reshape(scaled(flat, node, {length}), sizes);
}

// Normalizes over the last dimensions. ONNX's axis is the first of these
// dimensions, counted from the end.
Values layer_norm(AtenNode& node, OnnxGraph& graph) {
  node.ignore({"cudnn_enable"});
  const Integers shape = node.integers("normalized_shape");
  const Term x = node.term("input");
  const double eps = node.number("eps");
  if (graph.decompose_layer_norm()) return decomposed(x, eps, node);
  const Term weight = weight_or(1, "weight", shape, node, graph);
  return {graph.op(
      "LayerNormalization",
      {x.value(), weight.value(), node.optional_value("bias")},
      {{"axis", -std::ssize(shape)}, {"epsilon", eps}})};
}

// x / sqrt(mean(x^2) + eps), times a weight. The default eps is the type's
// epsilon.
Values rms_norm(AtenNode& node, OnnxGraph&) {
  const Integers shape = node.integers("normalized_shape");
  const Term x = node.term("input");
  const double smallest = x.type() == torch::kDouble
                              ? std::numeric_limits<double>::epsilon()
                              : std::numeric_limits<float>::epsilon();
  const double eps = node.has("eps") ? node.number("eps") : smallest;
  const Term squares = term::mean(x * x, last_axes(shape.size()), true);
  const Term y = x / term::sqrt(squares + eps);
  return node.has("weight") ? y * node.term("weight", x.type()) : y;
}

}  // namespace

OperatorTable norms() {
  return {
      {"aten::batch_norm", batch_norm},
      {"aten::group_norm", group_norm},
      {"aten::instance_norm", instance_norm},
      {"aten::layer_norm", layer_norm},
      {"aten::rms_norm", rms_norm},
  };
}

}  // namespace tern::onnx
