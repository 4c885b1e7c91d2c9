// Functions of one number: exp, floor, sin and similar ones.
#include <cmath>
#include <numbers>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch returns floats for integers, so these are cast first.
Operator of_floats(const char* type) {
  return [type](AtenNode& node, OnnxGraph&) -> Values {
    return node.term("self", node.output_type()).op(type);
  };
}

// Integers and booleans stay unchanged.
Operator rounded(const char* type) {
  return [type](AtenNode& node, OnnxGraph&) -> Values {
    const Term x = node.term("self");
    return x.is_float() ? x.op(type) : x;
  };
}

Values abs(AtenNode& node, OnnxGraph&) {
  return term::abs(node.term("self"));
}

Values neg(AtenNode& node, OnnxGraph&) {
  return -node.term("self");
}

Values sign(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  return x.is_bool() ? x : x.op("Sign");
}

Values square(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self", node.output_type());
  return x * x;
}

Values trunc(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  return x.is_float() ? term::trunc(x) : x;
}

// ONNX Runtime uses log(x + sqrt(x * x + 1)), which is NaN for very negative x.
Term asinh(const Term& x) {
  return x.op("Sign") * term::abs(x).op("Asinh");
}

// exp(x) - 1 would lose precision for small x.
Term expm1(const Term& x) {
  return term::tanh(x / 2) * (term::exp(x) + 1);
}

// log(x + 1) would lose precision too.
Term log1p(const Term& x) {
  const Term of_small = 2 * (x / (x + 2)).op("Atanh");
  return term::where(term::abs(x) < 0.5, of_small, term::log(x + 1));
}

Term log2(const Term& x) {
  return term::log(x) * (1 / std::numbers::ln2);
}

Term log10(const Term& x) {
  return term::log(x) * (1 / std::numbers::ln10);
}

Term exp2(const Term& x) {
  return term::exp(x * std::numbers::ln2);
}

Term erfc(const Term& x) {
  return 1 - x.op("Erf");
}

Term frac(const Term& x) {
  return x - term::trunc(x);
}

Term rsqrt(const Term& x) {
  return 1 / term::sqrt(x);
}

}  // namespace

// ONNX also rounds halves to the even neighbor.
OperatorTable functions() {
  return {
      {"aten::abs", abs},
      {"aten::acos", of_floats("Acos")},
      {"aten::acosh", of_floats("Acosh")},
      {"aten::asin", of_floats("Asin")},
      {"aten::asinh", formula(asinh)},
      {"aten::atan", of_floats("Atan")},
      {"aten::atanh", of_floats("Atanh")},
      {"aten::ceil", rounded("Ceil")},
      {"aten::cos", of_floats("Cos")},
      {"aten::cosh", of_floats("Cosh")},
      {"aten::erf", of_floats("Erf")},
      {"aten::erfc", formula(erfc)},
      {"aten::exp", of_floats("Exp")},
      {"aten::exp2", formula(exp2)},
      {"aten::expm1", formula(expm1)},
      {"aten::floor", rounded("Floor")},
      {"aten::frac", formula(frac)},
      {"aten::log", of_floats("Log")},
      {"aten::log10", formula(log10)},
      {"aten::log1p", formula(log1p)},
      {"aten::log2", formula(log2)},
      {"aten::neg", neg},
      {"aten::reciprocal", of_floats("Reciprocal")},
      {"aten::round", rounded("Round")},
      {"aten::rsqrt", formula(rsqrt)},
      {"aten::sign", sign},
      {"aten::sin", of_floats("Sin")},
      {"aten::sinh", of_floats("Sinh")},
      {"aten::sqrt", of_floats("Sqrt")},
      {"aten::square", square},
      {"aten::tan", of_floats("Tan")},
      {"aten::tanh", of_floats("Tanh")},
      {"aten::trunc", trunc},
  };
}

}  // namespace tern::onnx
