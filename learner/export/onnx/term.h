#pragma once

#include <string>
#include <vector>

#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// A tensor of the graph with its type, so that formulas read as in PyTorch: `x
/// * (1 + term::tanh(x)) / 2`.
///
/// ONNX does not cast: the caller must cast both operands of an operator to the
/// same type. ONNX Runtime cannot compute with integers of 8 and 16 bits, so
/// Term computes with 32 bits and casts back. For booleans, `+` and `max` mean
/// "or", `*` and `min` mean "and".
class Term {
 public:
  Term(OnnxGraph& graph, Value* value, torch::ScalarType type)
      : graph_(&graph), value_(value), type_(type) {}

  OnnxGraph& graph() const { return *graph_; }
  Value* value() const { return value_; }
  torch::ScalarType type() const { return type_; }
  bool is_float() const { return c10::isFloatingType(type_); }
  bool is_bool() const { return type_ == torch::kBool; }

  Term to(torch::ScalarType type) const;
  /// Returns a number as a Term of this type.
  Term number(double x) const;
  /// Applies an ONNX operator to this tensor, as its first input, and `others`.
  /// The result has this type.
  Term op(
      const std::string& type,
      const std::vector<Term>& others = {},
      const Attributes& attributes = {}) const;
  /// Like `op`, for operators with further integer inputs such as shapes,
  /// indices or axes.
  Term op_with(
      const std::string& type,
      const Values& others,
      const Attributes& attributes = {}) const;

  /// The return value of an operator's function.
  // NOLINTNEXTLINE(google-explicit-constructor): `return x;`
  operator Values() const { return {value_}; }

 private:
  OnnxGraph* graph_;
  Value* value_;
  torch::ScalarType type_;
};

Term operator+(const Term& a, const Term& b);
Term operator-(const Term& a, const Term& b);
Term operator*(const Term& a, const Term& b);
Term operator/(const Term& a, const Term& b);
Term operator+(const Term& a, double b);
Term operator-(const Term& a, double b);
Term operator*(const Term& a, double b);
Term operator/(const Term& a, double b);
Term operator+(double a, const Term& b);
Term operator-(double a, const Term& b);
Term operator*(double a, const Term& b);
Term operator/(double a, const Term& b);
Term operator-(const Term& a);

Term operator<(const Term& a, const Term& b);
Term operator>(const Term& a, const Term& b);
Term operator<=(const Term& a, const Term& b);
Term operator>=(const Term& a, const Term& b);
Term operator==(const Term& a, const Term& b);
Term operator!=(const Term& a, const Term& b);
Term operator<(const Term& a, double b);
Term operator>(const Term& a, double b);
Term operator<=(const Term& a, double b);
Term operator>=(const Term& a, double b);
Term operator==(const Term& a, double b);
Term operator!=(const Term& a, double b);

/// On booleans, as in PyTorch.
Term operator&(const Term& a, const Term& b);
Term operator|(const Term& a, const Term& b);
Term operator^(const Term& a, const Term& b);
Term operator!(const Term& a);

namespace term {

Term abs(const Term& x);
Term exp(const Term& x);
Term log(const Term& x);
Term sqrt(const Term& x);
Term tanh(const Term& x);
Term sigmoid(const Term& x);
Term pow(const Term& x, const Term& exponent);
/// Rounds towards 0.
Term trunc(const Term& x);
Term max(const Term& a, const Term& b);
Term min(const Term& a, const Term& b);
Term where(const Term& condition, const Term& a, const Term& b);
Term matmul(const Term& a, const Term& b);

/// Reduces these axes, counted from the front or the end; all axes if empty.
Term sum(const Term& x, const Integers& axes, bool keepdim);
Term mean(const Term& x, const Integers& axes, bool keepdim);
/// Reduces with "ReduceMax" or another ONNX operator that has axes as an
/// attribute.
Term reduce(
    const char* type,
    const Term& x,
    const Integers& axes,
    bool keepdim);

Term reshape(const Term& x, const Integers& sizes);
Term unsqueeze(const Term& x, int64_t axis);
Term squeeze(const Term& x, int64_t axis);
Term transpose(const Term& x, const Integers& order);
/// Returns the elements at `places`, a tensor of integers, along an axis.
Term gather(const Term& x, const torch::Tensor& places, int64_t axis);

}  // namespace term

}  // namespace tern::onnx
