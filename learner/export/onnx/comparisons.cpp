// Comparisons, boolean logic, and choices.
#include <cmath>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "tern/learner/export/onnx/operators.h"

namespace tern::onnx {

namespace {

using OfTwo = Term (*)(const Term& a, const Term& b);

// The result is bool; the arguments are compared in their common type.
Operator comparison(OfTwo function) {
  return [function](AtenNode& node, OnnxGraph&) -> Values {
    const torch::ScalarType type = node.common_type({"self", "other"});
    const Term self = node.term("self", type);
    return function(self, node.term("other", type));
  };
}

// Numbers other than 0 count as true.
Operator logical(OfTwo function) {
  return [function](AtenNode& node, OnnxGraph&) -> Values {
    const Term self = node.term("self", torch::kBool);
    return function(self, node.term("other", torch::kBool));
  };
}

// ONNX has bitwise operators for integers from opset 18 on.
Operator bitwise(OfTwo function) {
  return [function](AtenNode& node, OnnxGraph&) -> Values {
    if (node.output_type() != torch::kBool) {
      refuse(fmt::format(
          "its type is {}; expected Bool, since ONNX has no bits of integers "
          "before opset 18. Use comparisons and logical_and, or arithmetic",
          torch::toString(node.output_type())));
    }
    const Term self = node.term("self", torch::kBool);
    return function(self, node.term("other", torch::kBool));
  };
}

Term both(const Term& a, const Term& b) {
  return a & b;
}

Term either(const Term& a, const Term& b) {
  return a | b;
}

Term one_of(const Term& a, const Term& b) {
  return a ^ b;
}

// For integers, inverts all bits: -1 - x.
Values bitwise_not(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  return x.is_bool() ? !x : -1 - x;
}

Values logical_not(AtenNode& node, OnnxGraph&) {
  return !node.term("self", torch::kBool);
}

// Only NaN differs from itself; integers never do.
Values isnan(AtenNode& node, OnnxGraph& graph) {
  const Term x = node.term("self");
  if (!x.is_float()) return x != x;
  return {graph.op("IsNaN", {x.value()})};
}

Values isinf(AtenNode& node, OnnxGraph&) {
  const Term x = node.term("self");
  if (!x.is_float()) return x != x;
  return term::abs(x) == std::numeric_limits<double>::infinity();
}

// ---- Choices ----

Values where(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term condition = node.term("condition", torch::kBool);
  const Term self = node.term("self", type);
  return term::where(condition, self, node.term("other", type));
}

Values masked_fill(AtenNode& node, OnnxGraph&) {
  const torch::ScalarType type = node.output_type();
  const Term mask = node.term("mask", torch::kBool);
  const Term value = node.term("value", type);
  return term::where(mask, value, node.term("self", type));
}

}  // namespace

OperatorTable comparisons() {
  return {
      {"aten::__and__", bitwise(both)},
      {"aten::__or__", bitwise(either)},
      {"aten::__xor__", bitwise(one_of)},
      {"aten::bitwise_and", bitwise(both)},
      {"aten::bitwise_not", bitwise_not},
      {"aten::bitwise_or", bitwise(either)},
      {"aten::bitwise_xor", bitwise(one_of)},
      {"aten::eq",
       comparison([](const Term& a, const Term& b) { return a == b; })},
      {"aten::ge",
       comparison([](const Term& a, const Term& b) { return a >= b; })},
      {"aten::gt",
       comparison([](const Term& a, const Term& b) { return a > b; })},
      {"aten::isinf", isinf},
      {"aten::isnan", isnan},
      {"aten::le",
       comparison([](const Term& a, const Term& b) { return a <= b; })},
      {"aten::logical_and", logical(both)},
      {"aten::logical_not", logical_not},
      {"aten::logical_or", logical(either)},
      {"aten::logical_xor", logical(one_of)},
      {"aten::lt",
       comparison([](const Term& a, const Term& b) { return a < b; })},
      {"aten::masked_fill", masked_fill},
      {"aten::ne",
       comparison([](const Term& a, const Term& b) { return a != b; })},
      {"aten::where", where},
  };
}

}  // namespace tern::onnx
