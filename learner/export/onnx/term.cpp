#include "tern/learner/export/onnx/term.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace tern::onnx {

namespace {

// Returns the type in which ONNX Runtime has kernels.
torch::ScalarType computed_type(torch::ScalarType type) {
  switch (type) {
    case torch::kBool:
    case torch::kByte:
    case torch::kChar:
    case torch::kShort:
      return torch::kInt;
    default:
      return type;
  }
}

// Operators that ONNX Runtime supports only in fp32.
constexpr std::string_view kSingle[] = {
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "AveragePool",
    "Celu",
    "Conv",
    "ConvTranspose",
    "Cosh",
    "Elu",
    "Erf",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "GridSample",
    "HardSigmoid",
    "HardSwish",
    "InstanceNormalization",
    "Resize",
    "Selu",
    "Shrink",
    "Sinh",
    "Softplus",
    "Tan"};

void check_kernel(std::string_view operation, torch::ScalarType type) {
  const bool is_double = type == torch::kDouble;
  if (c10::isFloatingType(type) && !is_double) return;
  if (std::ranges::count(kSingle, operation) == 0) return;
  refuse(fmt::format(
      "its numbers are {}, for which ONNX Runtime has no {}; expected Float. "
      "Write .to(torch::kFloat) before it",
      torch::toString(type),
      operation));
}

Term compare(const char* type, const Term& a, const Term& b) {
  const torch::ScalarType computed = computed_type(a.type());
  Value* const left = a.to(computed).value();
  Value* const right = b.to(computed).value();
  return {a.graph(), a.graph().op(type, {left, right}), torch::kBool};
}

Term logical(const char* type, const Term& a, const Term& b) {
  Value* const result = a.graph().op(type, {a.value(), b.value()});
  return {a.graph(), result, torch::kBool};
}

}  // namespace

Term Term::to(torch::ScalarType type) const {
  return {*graph_, graph_->cast(value_, type_, type), type};
}

Term Term::number(double x) const {
  return {*graph_, graph_->scalar(x, type_), type_};
}

Term Term::op(
    const std::string& type,
    const std::vector<Term>& others,
    const Attributes& attributes) const {
  check_kernel(type, type_);
  const torch::ScalarType computed = computed_type(type_);
  Values inputs = {to(computed).value()};
  for (const Term& other : others) inputs.push_back(other.to(computed).value());
  return Term(*graph_, graph_->op(type, inputs, attributes), computed)
      .to(type_);
}

Term Term::op_with(
    const std::string& type,
    const Values& others,
    const Attributes& attributes) const {
  check_kernel(type, type_);
  Values inputs = {value_};
  inputs.insert(inputs.end(), others.begin(), others.end());
  return {*graph_, graph_->op(type, inputs, attributes), type_};
}

// ---- Arithmetic ----

Term operator+(const Term& a, const Term& b) {
  return a.is_bool() ? a | b : a.op("Add", {b});
}

Term operator-(const Term& a, const Term& b) {
  return a.op("Sub", {b});
}

Term operator*(const Term& a, const Term& b) {
  return a.is_bool() ? a & b : a.op("Mul", {b});
}

Term operator/(const Term& a, const Term& b) {
  return a.op("Div", {b});
}

Term operator+(const Term& a, double b) {
  return a + a.number(b);
}

Term operator-(const Term& a, double b) {
  return a - a.number(b);
}

Term operator*(const Term& a, double b) {
  return a * a.number(b);
}

Term operator/(const Term& a, double b) {
  return a / a.number(b);
}

Term operator+(double a, const Term& b) {
  return b.number(a) + b;
}

Term operator-(double a, const Term& b) {
  return b.number(a) - b;
}

Term operator*(double a, const Term& b) {
  return b.number(a) * b;
}

Term operator/(double a, const Term& b) {
  return b.number(a) / b;
}

Term operator-(const Term& a) {
  return a.op("Neg");
}

// ---- Comparisons ----

Term operator<(const Term& a, const Term& b) {
  return compare("Less", a, b);
}

Term operator>(const Term& a, const Term& b) {
  return compare("Greater", a, b);
}

Term operator<=(const Term& a, const Term& b) {
  return compare("LessOrEqual", a, b);
}

Term operator>=(const Term& a, const Term& b) {
  return compare("GreaterOrEqual", a, b);
}

Term operator==(const Term& a, const Term& b) {
  return compare("Equal", a, b);
}

Term operator!=(const Term& a, const Term& b) {
  return !(a == b);
}

Term operator<(const Term& a, double b) {
  return a < a.number(b);
}

Term operator>(const Term& a, double b) {
  return a > a.number(b);
}

Term operator<=(const Term& a, double b) {
  return a <= a.number(b);
}

Term operator>=(const Term& a, double b) {
  return a >= a.number(b);
}

Term operator==(const Term& a, double b) {
  return a == a.number(b);
}

Term operator!=(const Term& a, double b) {
  return a != a.number(b);
}

// ---- Booleans ----

Term operator&(const Term& a, const Term& b) {
  return logical("And", a, b);
}

Term operator|(const Term& a, const Term& b) {
  return logical("Or", a, b);
}

Term operator^(const Term& a, const Term& b) {
  return logical("Xor", a, b);
}

Term operator!(const Term& a) {
  return {a.graph(), a.graph().op("Not", {a.value()}), torch::kBool};
}

namespace term {

// ---- Functions ----

Term abs(const Term& x) {
  return x.op("Abs");
}

Term exp(const Term& x) {
  return x.op("Exp");
}

Term log(const Term& x) {
  return x.op("Log");
}

Term sqrt(const Term& x) {
  return x.op("Sqrt");
}

Term tanh(const Term& x) {
  return x.op("Tanh");
}

Term sigmoid(const Term& x) {
  return x.op("Sigmoid");
}

Term pow(const Term& x, const Term& exponent) {
  return x.op("Pow", {exponent});
}

// ONNX has no Trunc.
Term trunc(const Term& x) {
  return where(x < 0, x.op("Ceil"), x.op("Floor"));
}

Term max(const Term& a, const Term& b) {
  return a.is_bool() ? a | b : a.op("Max", {b});
}

Term min(const Term& a, const Term& b) {
  return a.is_bool() ? a & b : a.op("Min", {b});
}

Term where(const Term& condition, const Term& a, const Term& b) {
  const torch::ScalarType computed = computed_type(a.type());
  Value* const first = a.to(computed).value();
  Value* const second = b.to(computed).value();
  Value* const chosen =
      a.graph().op("Where", {condition.value(), first, second});
  return Term(a.graph(), chosen, computed).to(a.type());
}

Term matmul(const Term& a, const Term& b) {
  return a.op("MatMul", {b});
}

// ---- Over axes ----

// In opset 17 axes are an input of ReduceSum, but an attribute of the other
// reductions.
Term sum(const Term& x, const Integers& axes, bool keepdim) {
  const torch::ScalarType computed = computed_type(x.type());
  Values others;
  if (!axes.empty()) others.push_back(x.graph().integers(axes));
  return x.to(computed)
      .op_with("ReduceSum", others, {{"keepdims", keepdim}})
      .to(x.type());
}

Term mean(const Term& x, const Integers& axes, bool keepdim) {
  return reduce("ReduceMean", x, axes, keepdim);
}

Term reduce(
    const char* type,
    const Term& x,
    const Integers& axes,
    bool keepdim) {
  Attributes attributes = {{"keepdims", keepdim}};
  if (!axes.empty()) attributes.emplace_back("axes", axes);
  return x.op(type, {}, attributes);
}

// ---- Shapes ----

Term reshape(const Term& x, const Integers& sizes) {
  return x.op_with("Reshape", {x.graph().shape_to_infer(sizes)});
}

Term unsqueeze(const Term& x, int64_t axis) {
  return x.op_with("Unsqueeze", {x.graph().integers({axis})});
}

Term squeeze(const Term& x, int64_t axis) {
  return x.op_with("Squeeze", {x.graph().integers({axis})});
}

Term transpose(const Term& x, const Integers& order) {
  return x.op_with("Transpose", {}, {{"perm", order}});
}

Term gather(const Term& x, const torch::Tensor& places, int64_t axis) {
  return x.op_with("Gather", {x.graph().constant(places)}, {{"axis", axis}});
}

}  // namespace term

}  // namespace tern::onnx
