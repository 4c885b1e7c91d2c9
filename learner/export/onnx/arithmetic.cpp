// Arithmetic of two or more tensors, limits, casts, and operators without
// effect.
#include <string_view>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

// PyTorch computes in the type of the result: the common type of the arguments,
// where tensors take precedence over numbers. ONNX does not cast.
Operator of_two(Term (*function)(const Term& a, const Term& b)) {
  return [function](AtenNode& node, OnnxGraph&) -> Values {
    const torch::ScalarType type = node.output_type();
    const Term self = node.term("self", type);
    return function(self, node.term("other", type));
  };
}

// Multiplies `x` by an optional argument whose default is 1.
Term times(const Term& x, std::string_view factor, AtenNode& node) {
  if (!node.has(factor) || node.number(factor) == 1) {
    node.ignore({factor});
    return x;
  }
  return x * node.term(factor, x.type());
}

Values add(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term self = node.term("self", type);
  return self + times(node.term("other", type), "alpha", node);
}

Values sub(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term self = node.term("self", type);
  return self - times(node.term("other", type), "alpha", node);
}

Values rsub(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term self = times(node.term("self", type), "alpha", node);
  return node.term("other", type) - self;
}

Values addcmul(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term self = node.term("self", type);
  const Term first = node.term("tensor1", type);
  return self + times(first * node.term("tensor2", type), "value", node);
}

Values addcdiv(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term self = node.term("self", type);
  const Term first = node.term("tensor1", type);
  return self + times(first / node.term("tensor2", type), "value", node);
}

Values lerp(AtenNode& node, OnnxGraph&) {
  const Term self = node.term("self");
  const Term end = node.term("end");
  return self + node.term("weight", self.type()) * (end - self);
}

// ---- Division ----

// The remainder has the sign of `a`, as in C.
Term fmod(const Term& a, const Term& b) {
  return a.op("Mod", {b}, {{"fmod", true}});
}

// The remainder has the sign of `b`, as in Python. ONNX supports this only for
// integers.
Term remainder(const Term& a, const Term& b) {
  if (!a.is_float()) return a.op("Mod", {b});
  const Term rest = fmod(a, b);
  const Term has_other_sign = (rest != 0) & ((rest < 0) ^ (b < 0));
  return term::where(has_other_sign, rest + b, rest);
}

// After subtracting the remainder, the quotient is an integer, up to rounding
// errors.
Term floor_divide(const Term& a, const Term& b) {
  const Term whole = (a - remainder(a, b)) / b;
  return a.is_float() ? term::where(b == 0, a / b, whole.op("Round")) : whole;
}

Values div(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term a = node.term("self", type);
  const Term b = node.term("other", type);
  const std::string mode = node.string("rounding_mode");
  if (mode == "floor") return floor_divide(a, b);
  return mode == "trunc" && a.is_float() ? term::trunc(a / b) : a / b;
}

Values pow(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term self = node.term("self", type);
  return term::pow(self, node.term("exponent", type));
}

// ---- Limits ----

// Each limit is a number or a tensor, and may be missing. A NaN limit gives NaN
// both here and in PyTorch.
Term limited(
    Term x,
    std::string_view min,
    std::string_view max,
    AtenNode& node) {
  if (node.has(min)) x = term::max(x, node.term(min, x.type()));
  if (node.has(max)) x = term::min(x, node.term(max, x.type()));
  return x;
}

bool is_number(std::string_view name, const AtenNode& node) {
  return !node.has(name) || node.rank(name) == 0;
}

// Uses Clip where possible; it supports only numbers as limits.
Values clamp(AtenNode& node, OnnxGraph& graph) {
  const Term x = node.term("self", node.output_type());
  const bool is_clip = is_number("min", node) && is_number("max", node);
  if (!is_clip || !x.is_float()) return limited(x, "min", "max", node);
  const auto limit = [&](const char* name) {
    return node.has(name) ? node.value(name, x.type()) : nullptr;
  };
  Value* const min = limit("min");
  Value* const max = limit("max");
  return {graph.op("Clip", {x.value(), min, max})};
}

// ---- Casts, and operators without effect ----

// `to` and `type_as`. Devices and layouts have no meaning in ONNX.
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

// `alias`, `clone`, `contiguous`, `detach`: values in ONNX have no memory.
Values same(AtenNode& node, OnnxGraph&) {
  node.ignore({"memory_format"});
  return {node.value("self")};
}

}  // namespace

OperatorTable arithmetic() {
  return {
      {"aten::add", add},
      {"aten::addcdiv", addcdiv},
      {"aten::addcmul", addcmul},
      {"aten::alias", same},
      {"aten::clamp", clamp},
      {"aten::clamp_max", clamp},
      {"aten::clamp_min", clamp},
      {"aten::clone", same},
      {"aten::contiguous", same},
      {"aten::detach", same},
      {"aten::div", div},
      {"aten::floor_divide", of_two(floor_divide)},
      {"aten::fmod", of_two(fmod)},
      {"aten::lerp", lerp},
      {"aten::maximum", of_two(term::max)},
      {"aten::minimum", of_two(term::min)},
      {"aten::mul", of_two([](const Term& a, const Term& b) { return a * b; })},
      {"aten::pow", pow},
      {"aten::remainder", of_two(remainder)},
      {"aten::rsub", rsub},
      {"aten::sub", sub},
      {"aten::to", to},
      {"aten::type_as", to},
  };
}

}  // namespace tern::onnx
