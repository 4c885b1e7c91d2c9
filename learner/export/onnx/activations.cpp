// Activations, and dropout, which eval mode disables.
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// Translates to an ONNX operator with one number, which has a different name in
// PyTorch.
Operator
with_number(const char* type, const char* attribute, const char* argument) {
  return [=](AtenNode& node, OnnxGraph&) -> Values {
    return node.term("self").op(type, {}, {{attribute, node.number(argument)}});
  };
}

// A maximum for integers, since ONNX Runtime's Relu does not support int64.
Term relu(const Term& x) {
  return x.is_float() ? x.op("Relu") : term::max(x, x.number(0));
}

// ONNX's alpha is 0.2 by default, PyTorch's slope is 1 / 6.
Term hardsigmoid(const Term& x) {
  return x.op("HardSigmoid", {}, {{"alpha", 1.0 / 6}});
}

Term hardswish(const Term& x) {
  return x.op("HardSwish");
}

Term log_sigmoid(const Term& x) {
  return -(-x).op("Softplus");
}

Term mish(const Term& x) {
  return x * term::tanh(x.op("Softplus"));
}

Term relu6(const Term& x) {
  return x.op("Clip", {x.number(0), x.number(6)});
}

Term selu(const Term& x) {
  return x.op("Selu");
}

Term silu(const Term& x) {
  return x * term::sigmoid(x);
}

// Supports PyTorch's factors scale and input_scale only with their default 1.
Values elu(AtenNode& node, OnnxGraph&) {
  return node.term("self").op("Elu", {}, {{"alpha", node.number("alpha")}});
}

// ONNX has no Gelu before opset 20.
Values gelu(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  if (node.string("approximate") == "none") {
    return x * 0.5 * ((x * (1 / std::numbers::sqrt2)).op("Erf") + 1);
  }
  const double scale = std::sqrt(2 / std::numbers::pi);
  return x * 0.5 * (term::tanh((x + x * x * x * 0.044715) * scale) + 1);
}

// Multiplies the first half by the sigmoid of the second half.
Values glu(AtenNode& node, OnnxGraph& graph) {
  const int64_t axis = node.dimension("dim");
  const int64_t half = node.sizes("self")[axis] / 2;
  const torch::ScalarType type = node.type("self");
  const Values halves = graph.op_with_outputs(
      2,
      "Split",
      {node.value("self"), graph.integers({half, half})},
      {{"axis", axis}});
  return Term(graph, halves[0], type) *
         term::sigmoid(Term(graph, halves[1], type));
}

// The limits of integers are integers.
Values hardtanh(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  const Term min = node.term("min_val", x.type());
  const Term max = node.term("max_val", x.type());
  return x.op("Clip", {min, max});
}

// With a slope for each channel (dimension 1), or one slope for all.
Values prelu(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  const Term weight = node.term("weight");
  const int64_t rank = node.rank("self");
  Integers shape(rank, 1);
  if (rank > 1) shape[1] = -1;
  return x.op("PRelu", {term::reshape(weight, shape)});
}

// In eval mode, a leaky ReLU with the mean slope.
Values rrelu(AtenNode& node, OnnxGraph&) {
  node.ignore({"generator"});
  if (node.flag("training")) {
    refuse(
        "its training is true, so it draws random slopes in evaluation; "
        "expected false. Pass is_training()");
  }
  const double slope = (node.number("lower") + node.number("upper")) / 2;
  return node.term("self").op("LeakyRelu", {}, {{"alpha", slope}});
}

Values softplus(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  const double beta = node.number("beta");
  const Term scaled = x * beta;
  return term::where(
      scaled > node.number("threshold"),
      x,
      scaled.op("Softplus") / beta);
}

// Moves numbers towards 0 by `bias`; numbers between the limits become 0.
Values shrink(AtenNode& node, bool moves) {
  const double limit = node.number("lambd");
  return node.term("self").op(
      "Shrink",
      {},
      {{"lambd", limit}, {"bias", moves ? limit : 0.0}});
}

Values softshrink(AtenNode& node, OnnxGraph&) {
  return shrink(node, /*moves=*/true);
}

Values hardshrink(AtenNode& node, OnnxGraph&) {
  return shrink(node, /*moves=*/false);
}

Values threshold(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  const Term limit = node.term("threshold", x.type());
  return term::where(x <= limit, node.term("value", x.type()), x);
}

// Does nothing in eval mode, unless the model calls it with train = true.
Values dropout(AtenNode& node, OnnxGraph&) {
  if (node.flag("train") && node.number("p") != 0) {
    refuse(fmt::format(
        "its train is true and p is {}, so it draws random numbers in "
        "evaluation; expected train = false. Pass is_training()",
        node.number("p")));
  }
  node.ignore({"p"});
  return {node.value("input")};
}

}  // namespace

OperatorTable activations() {
  return {
      {"aten::alpha_dropout", dropout},
      {"aten::celu", with_number("Celu", "alpha", "alpha")},
      {"aten::dropout", dropout},
      {"aten::elu", elu},
      {"aten::feature_alpha_dropout", dropout},
      {"aten::feature_dropout", dropout},
      {"aten::gelu", gelu},
      {"aten::glu", glu},
      {"aten::hardshrink", hardshrink},
      {"aten::hardsigmoid", formula(hardsigmoid)},
      {"aten::hardswish", formula(hardswish)},
      {"aten::hardtanh", hardtanh},
      {"aten::leaky_relu", with_number("LeakyRelu", "alpha", "negative_slope")},
      {"aten::log_sigmoid", formula(log_sigmoid)},
      {"aten::mish", formula(mish)},
      {"aten::prelu", prelu},
      {"aten::relu", formula(relu)},
      {"aten::relu6", formula(relu6)},
      {"aten::rrelu", rrelu},
      {"aten::selu", formula(selu)},
      {"aten::sigmoid", formula(term::sigmoid)},
      {"aten::silu", formula(silu)},
      {"aten::softplus", softplus},
      {"aten::softshrink", softshrink},
      {"aten::threshold", threshold},
  };
}

}  // namespace tern::onnx
