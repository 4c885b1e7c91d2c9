// Functions of single numbers, arithmetic, comparisons and choices.
#include <cmath>
#include <limits>

#include "tern/kernels/check.h"
#include "tern/learner/export/onnx/interpreter/operation.h"

namespace tern::onnx {

namespace {

using torch::Tensor;

template <typename Function>
Compute of_floats(Function function) {
  return [function](const Operation& op) -> std::vector<Tensor> {
    return {function(op.floats())};
  };
}

template <typename Function>
Compute of_numbers(Function function) {
  return [function](const Operation& op) -> std::vector<Tensor> {
    return {function(op.numbers())};
  };
}

// Two operands of the same type, with broadcasting.
template <typename Function>
Compute of_two_numbers(Function function) {
  return [function](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    return {function(op.numbers(0), op.numbers(1))};
  };
}

template <typename Function>
Compute of_two_booleans(Function function) {
  return [function](const Operation& op) -> std::vector<Tensor> {
    return {function(op.booleans(0), op.booleans(1))};
  };
}

// Any number of operands, applied one after the other.
template <typename Function>
Compute of_all_numbers(Function function) {
  return [function](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    Tensor result = op.numbers(0);
    for (size_t i = 1; i < op.count(); ++i) {
      result = function(result, op.numbers(i));
    }
    return {result};
  };
}

// The specification's number for each type, TensorProto.DataType.
torch::ScalarType type_by_number(int64_t number) {
  switch (number) {
    case 1:
      return torch::kFloat;
    case 2:
      return torch::kByte;
    case 3:
      return torch::kChar;
    case 5:
      return torch::kShort;
    case 6:
      return torch::kInt;
    case 7:
      return torch::kLong;
    case 9:
      return torch::kBool;
    case 10:
      return torch::kHalf;
    case 11:
      return torch::kDouble;
    case 16:
      return torch::kBFloat16;
    default:
      TERN_CHECK_VALUE(
          false,
          "its type is {}; expected a type that ONNX has",
          number);
  }
}

Tensor softplus(const Tensor& x) {
  return x.clamp_min(0) + x.abs().neg().exp().log1p();
}

Tensor elu(const Tensor& x, double alpha) {
  return torch::where(x < 0, alpha * x.exp().sub(1), x);
}

Tensor integer_or_exact_quotient(const Tensor& x, const Tensor& y) {
  return x.is_floating_point() ? torch::div(x, y) : torch::div(x, y, "trunc");
}

void add_functions(ComputeTable& table) {
  table["Identity"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.input()};
  };
  table["Abs"] = of_numbers([](const Tensor& x) { return x.abs(); });
  table["Neg"] = of_numbers([](const Tensor& x) { return x.neg(); });
  table["Sign"] = of_numbers([](const Tensor& x) { return x.sign(); });
  table["Relu"] = of_numbers([](const Tensor& x) { return x.clamp_min(0); });
  table["Ceil"] = of_floats([](const Tensor& x) { return x.ceil(); });
  table["Floor"] = of_floats([](const Tensor& x) { return x.floor(); });
  // Rounds halves to the even neighbor.
  table["Round"] = of_floats([](const Tensor& x) { return x.round(); });
  table["Sqrt"] = of_floats([](const Tensor& x) { return x.sqrt(); });
  table["Exp"] = of_floats([](const Tensor& x) { return x.exp(); });
  table["Log"] = of_floats([](const Tensor& x) { return x.log(); });
  table["Erf"] = of_floats([](const Tensor& x) { return x.erf(); });
  table["Reciprocal"] = of_floats([](const Tensor& x) { return 1 / x; });
  table["Sin"] = of_floats([](const Tensor& x) { return x.sin(); });
  table["Cos"] = of_floats([](const Tensor& x) { return x.cos(); });
  table["Tan"] = of_floats([](const Tensor& x) { return x.tan(); });
  table["Asin"] = of_floats([](const Tensor& x) { return x.asin(); });
  table["Acos"] = of_floats([](const Tensor& x) { return x.acos(); });
  table["Atan"] = of_floats([](const Tensor& x) { return x.atan(); });
  table["Sinh"] = of_floats([](const Tensor& x) { return x.sinh(); });
  table["Cosh"] = of_floats([](const Tensor& x) { return x.cosh(); });
  table["Tanh"] = of_floats([](const Tensor& x) { return x.tanh(); });
  table["Asinh"] = of_floats([](const Tensor& x) { return x.asinh(); });
  table["Acosh"] = of_floats([](const Tensor& x) { return x.acosh(); });
  table["Atanh"] = of_floats([](const Tensor& x) { return x.atanh(); });
  table["Sigmoid"] = of_floats([](const Tensor& x) { return x.sigmoid(); });
  table["Softplus"] = of_floats(softplus);
  table["Softsign"] =
      of_floats([](const Tensor& x) { return x / (1 + x.abs()); });
  table["HardSwish"] =
      of_floats([](const Tensor& x) { return x * (x / 6 + 0.5).clamp(0, 1); });
  table["IsNaN"] = of_floats([](const Tensor& x) { return x.isnan(); });
  table["IsInf"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor& x = op.floats();
    Tensor is_inf = x.isinf();
    if (op.integer("detect_negative", 1) == 0) is_inf = is_inf & (x > 0);
    if (op.integer("detect_positive", 1) == 0) is_inf = is_inf & (x < 0);
    return {is_inf};
  };
}

void add_functions_with_attributes(ComputeTable& table) {
  table["LeakyRelu"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor& x = op.floats();
    return {torch::where(x < 0, x * op.number("alpha", 0.01), x)};
  };
  table["PRelu"] = [](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    const Tensor& x = op.numbers();
    const Tensor slope = op.numbers(1).expand_as(x);  // x is not expanded
    return {torch::where(x < 0, x * slope, x)};
  };
  table["ThresholdedRelu"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor& x = op.floats();
    return {torch::where(
        x > op.number("alpha", 1),
        x,
        torch::zeros({}, x.options()))};
  };
  table["Elu"] = [](const Operation& op) -> std::vector<Tensor> {
    return {elu(op.floats(), op.number("alpha", 1))};
  };
  table["Selu"] = [](const Operation& op) -> std::vector<Tensor> {
    const double alpha = op.number("alpha", 1.67326319217681884765625);
    const double gamma = op.number("gamma", 1.05070102214813232421875);
    return {gamma * elu(op.floats(), alpha)};
  };
  table["Celu"] = [](const Operation& op) -> std::vector<Tensor> {
    const double alpha = op.number("alpha", 1);
    return {elu(op.floats() / alpha, 1) * alpha};
  };
  table["HardSigmoid"] = [](const Operation& op) -> std::vector<Tensor> {
    const double alpha = op.number("alpha", 0.2), beta = op.number("beta", 0.5);
    return {(op.floats() * alpha + beta).clamp(0, 1)};
  };
  table["Shrink"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor& x = op.numbers();
    const double bias = op.number("bias", 0), lambda = op.number("lambd", 0.5);
    const Tensor zero = torch::zeros({}, x.options());
    return {torch::where(
        x < -lambda,
        x + bias,
        torch::where(x > lambda, x - bias, zero))};
  };
  table["Clip"] = [](const Operation& op) -> std::vector<Tensor> {
    Tensor x = op.numbers();
    for (const size_t i : {1, 2}) {
      if (!op.has(i)) continue;
      const Tensor& limit = op.numbers(i);
      TERN_CHECK_VALUE(
          limit.dim() == 0 && limit.scalar_type() == x.scalar_type(),
          "a limit has {} dimensions and the type {}; expected a number of the "
          "type {}",
          limit.dim(),
          torch::toString(limit.scalar_type()),
          torch::toString(x.scalar_type()));
      x = i == 1 ? torch::maximum(x, limit) : torch::minimum(x, limit);
    }
    return {x};
  };
  table["Cast"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.input().to(type_by_number(op.integer("to", 0)))};
  };
  table["CastLike"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.input().to(op.input(1).scalar_type())};
  };
}

void add_arithmetic(ComputeTable& table) {
  using X = const Tensor&;
  table["Add"] = of_two_numbers([](X x, X y) { return x + y; });
  table["Sub"] = of_two_numbers([](X x, X y) { return x - y; });
  table["Mul"] = of_two_numbers([](X x, X y) { return x * y; });
  table["Div"] = of_two_numbers(integer_or_exact_quotient);
  // The exponent may have a different type; the result has the base's type.
  table["Pow"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor &x = op.numbers(0), &y = op.numbers(1);
    return {x.pow(y).to(x.scalar_type())};
  };
  table["Mod"] = [](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    const Tensor &x = op.numbers(0), &y = op.numbers(1);
    if (op.integer("fmod", 0) == 1) return {x.fmod(y)};
    TERN_CHECK_VALUE(
        !x.is_floating_point(),
        "it takes floating-point numbers with fmod = 0; expected integers");
    return {x.remainder(y)};
  };
  table["Max"] = of_all_numbers([](X x, X y) { return torch::maximum(x, y); });
  table["Min"] = of_all_numbers([](X x, X y) { return torch::minimum(x, y); });
  table["Sum"] = of_all_numbers([](X x, X y) { return x + y; });
  table["Mean"] = [](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    Tensor sum = op.floats(0);
    for (size_t i = 1; i < op.count(); ++i) sum = sum + op.floats(i);
    return {sum / static_cast<double>(op.count())};
  };
}

void add_choices(ComputeTable& table) {
  using X = const Tensor&;
  table["Not"] = [](const Operation& op) -> std::vector<Tensor> {
    return {op.booleans().logical_not()};
  };
  table["And"] = of_two_booleans([](X x, X y) { return x & y; });
  table["Or"] = of_two_booleans([](X x, X y) { return x | y; });
  table["Xor"] = of_two_booleans([](X x, X y) { return x ^ y; });
  table["Equal"] = [](const Operation& op) -> std::vector<Tensor> {
    op.require_one_type();
    return {op.input(0) == op.input(1)};
  };
  table["Greater"] = of_two_numbers([](X x, X y) { return x > y; });
  table["Less"] = of_two_numbers([](X x, X y) { return x < y; });
  table["GreaterOrEqual"] = of_two_numbers([](X x, X y) { return x >= y; });
  table["LessOrEqual"] = of_two_numbers([](X x, X y) { return x <= y; });
  table["Where"] = [](const Operation& op) -> std::vector<Tensor> {
    const Tensor &condition = op.booleans(0), &x = op.input(1),
                 &y = op.input(2);
    TERN_CHECK_VALUE(
        x.scalar_type() == y.scalar_type(),
        "it chooses between {} and {}; expected the same type",
        torch::toString(x.scalar_type()),
        torch::toString(y.scalar_type()));
    return {torch::where(condition, x, y)};
  };
}

}  // namespace

void add_numbers(ComputeTable& table) {
  add_functions(table);
  add_functions_with_attributes(table);
  add_arithmetic(table);
  add_choices(table);
}

}  // namespace tern::onnx
