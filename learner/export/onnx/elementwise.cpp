// Activations, arithmetic, comparisons and choices, number by number.
#include <numbers>
#include <string_view>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch computes in the type of the result: the common one of the arguments,
// of which a number that is no tensor counts less. ONNX casts nothing.
Values unary(const char* type, AtenNode& node, OnnxGraph& graph) {
  return {graph.op(type, {node.value("self", node.output_type())})};
}

Values binary(const char* type, AtenNode& node, OnnxGraph& graph) {
  const torch::ScalarType common = node.output_type();
  return {graph.op(
      type,
      {node.value("self", common), node.value("other", common)})};
}

// The result is bool, and the arguments are compared in their common type.
Value* comparison(const char* type, AtenNode& node, OnnxGraph& graph) {
  const auto common = promoteTypes(node.type("self"), node.type("other"));
  return graph.op(
      type,
      {node.value("self", common), node.value("other", common)});
}

}  // namespace

// ---- Functions of one number ----

Values abs(AtenNode& node, OnnxGraph& graph) {
  return unary("Abs", node, graph);
}

Values ceil(AtenNode& node, OnnxGraph& graph) {
  return unary("Ceil", node, graph);
}

Values cos(AtenNode& node, OnnxGraph& graph) {
  return unary("Cos", node, graph);
}

Values erf(AtenNode& node, OnnxGraph& graph) {
  return unary("Erf", node, graph);
}

Values exp(AtenNode& node, OnnxGraph& graph) {
  return unary("Exp", node, graph);
}

Values floor(AtenNode& node, OnnxGraph& graph) {
  return unary("Floor", node, graph);
}

Values log(AtenNode& node, OnnxGraph& graph) {
  return unary("Log", node, graph);
}

Values neg(AtenNode& node, OnnxGraph& graph) {
  return unary("Neg", node, graph);
}

// Both round halves to the even neighbour.
Values round(AtenNode& node, OnnxGraph& graph) {
  return unary("Round", node, graph);
}

Values sign(AtenNode& node, OnnxGraph& graph) {
  return unary("Sign", node, graph);
}

Values sin(AtenNode& node, OnnxGraph& graph) {
  return unary("Sin", node, graph);
}

Values sqrt(AtenNode& node, OnnxGraph& graph) {
  return unary("Sqrt", node, graph);
}

Values tanh(AtenNode& node, OnnxGraph& graph) {
  return unary("Tanh", node, graph);
}

// ---- Activations ----

Values relu(AtenNode& node, OnnxGraph& graph) {
  return unary("Relu", node, graph);
}

Values leaky_relu(AtenNode& node, OnnxGraph& graph) {
  return {graph.op(
      "LeakyRelu",
      {node.value("self")},
      {{"alpha", node.number("negative_slope")}})};
}

Values elu(AtenNode& node, OnnxGraph& graph) {
  return {
      graph.op("Elu", {node.value("self")}, {{"alpha", node.number("alpha")}})};
}

Values sigmoid(AtenNode& node, OnnxGraph& graph) {
  return unary("Sigmoid", node, graph);
}

// ONNX's alpha is 0.2 by default, PyTorch's slope is 1 / 6.
Values hardsigmoid(AtenNode& node, OnnxGraph& graph) {
  return {
      graph.op("HardSigmoid", {node.value("self")}, {{"alpha", 0.1666667}})};
}

Values hardswish(AtenNode& node, OnnxGraph& graph) {
  return unary("HardSwish", node, graph);
}

// x * sigmoid(x)
Values silu(AtenNode& node, OnnxGraph& graph) {
  Value* const x = node.value("self");
  return {graph.op("Mul", {x, graph.op("Sigmoid", {x})})};
}

// x * tanh(softplus(x))
Values mish(AtenNode& node, OnnxGraph& graph) {
  Value* const x = node.value("self");
  return {graph.op("Mul", {x, graph.op("Tanh", {graph.op("Softplus", {x})})})};
}

// x / 2 * (1 + erf(x / sqrt(2))): ONNX has no Gelu before opset 20.
// approximate="tanh" is refused.
Values gelu(AtenNode& node, OnnxGraph& graph) {
  Value* const x = node.value("self");
  const torch::ScalarType type = node.type("self");
  Value* const half = graph.op("Mul", {x, graph.scalar(0.5, type)});
  Value* const scaled =
      graph.op("Mul", {x, graph.scalar(1 / std::numbers::sqrt2, type)});
  Value* const erf = graph.op("Erf", {scaled});
  return {
      graph.op("Mul", {half, graph.op("Add", {erf, graph.scalar(1, type)})})};
}

// ---- Limits ----

namespace {

// Clip takes numbers, where PyTorch takes tensors of the input's shape too.
Value* limit(std::string_view name, AtenNode& node) {
  if (!node.has(name)) return nullptr;
  if (node.rank(name) > 0) {
    refuse(fmt::format(
        "its {} is a tensor; expected a number. Use maximum or minimum",
        name));
  }
  return node.value(name, node.output_type());
}

Values clip(
    std::string_view min,
    std::string_view max,
    AtenNode& node,
    OnnxGraph& graph) {
  Value* const self = node.value("self", node.output_type());
  Value* const lower = limit(min, node);
  Value* const upper = limit(max, node);
  return {graph.op("Clip", {self, lower, upper})};
}

}  // namespace

// Each limit may be missing.
Values clamp(AtenNode& node, OnnxGraph& graph) {
  return clip("min", "max", node, graph);
}

Values clamp_min(AtenNode& node, OnnxGraph& graph) {
  return clip("min", "max", node, graph);
}

Values hardtanh(AtenNode& node, OnnxGraph& graph) {
  return clip("min_val", "max_val", node, graph);
}

// ---- Arithmetic ----

// alpha, by which `add` and `sub` multiply `other`, must be 1.
Values add(AtenNode& node, OnnxGraph& graph) {
  return binary("Add", node, graph);
}

Values sub(AtenNode& node, OnnxGraph& graph) {
  return binary("Sub", node, graph);
}

Values mul(AtenNode& node, OnnxGraph& graph) {
  return binary("Mul", node, graph);
}

// Of integers too the result is a float, to which they are cast before; a
// rounding_mode is refused.
Values div(AtenNode& node, OnnxGraph& graph) {
  return binary("Div", node, graph);
}

Values pow(AtenNode& node, OnnxGraph& graph) {
  const torch::ScalarType type = node.output_type();
  return {graph.op(
      "Pow",
      {node.value("self", type), node.value("exponent", type)})};
}

Values maximum(AtenNode& node, OnnxGraph& graph) {
  return binary("Max", node, graph);
}

Values minimum(AtenNode& node, OnnxGraph& graph) {
  return binary("Min", node, graph);
}

// ---- Comparisons ----

Values eq(AtenNode& node, OnnxGraph& graph) {
  return {comparison("Equal", node, graph)};
}

Values ne(AtenNode& node, OnnxGraph& graph) {
  return {graph.op("Not", {comparison("Equal", node, graph)})};
}

Values gt(AtenNode& node, OnnxGraph& graph) {
  return {comparison("Greater", node, graph)};
}

Values lt(AtenNode& node, OnnxGraph& graph) {
  return {comparison("Less", node, graph)};
}

Values ge(AtenNode& node, OnnxGraph& graph) {
  return {comparison("GreaterOrEqual", node, graph)};
}

Values le(AtenNode& node, OnnxGraph& graph) {
  return {comparison("LessOrEqual", node, graph)};
}

// ---- Choices ----

Values where(AtenNode& node, OnnxGraph& graph) {
  const torch::ScalarType type = node.output_type();
  return {graph.op(
      "Where",
      {node.value("condition"),
       node.value("self", type),
       node.value("other", type)})};
}

Values masked_fill(AtenNode& node, OnnxGraph& graph) {
  const torch::ScalarType type = node.output_type();
  return {graph.op(
      "Where",
      {node.value("mask"),
       node.value("value", type),
       node.value("self", type)})};
}

// ---- Types, and no change at all ----

// `to` and `type_as`. Devices and layouts are nothing to ONNX.
Values to(AtenNode& node, OnnxGraph&) {
  node.ignore(
      {"dtype",
       "other",
       "layout",
       "device",
       "pin_memory",
       "non_blocking",
       "copy",
       "memory_format"});
  return {node.value("self", node.output_type())};
}

// `alias`, `clone`, `contiguous`, `detach`: ONNX has values, not memory.
Values same(AtenNode& node, OnnxGraph&) {
  node.ignore({"memory_format"});
  return {node.value("self")};
}

// Off in eval mode.
Values dropout(AtenNode& node, OnnxGraph&) {
  node.ignore({"p", "train"});
  return {node.value("input")};
}

}  // namespace tern::onnx
