#pragma once

#include <string>
#include <vector>

#include "tern/learner/export/onnx/onnx_graph.h"

namespace tern::onnx {

/// A tensor of the graph with its type, so that formulas read as they do in
/// PyTorch: `x * (1 + term::tanh(x)) / 2`.
///
/// ONNX casts nothing: both sides of an operator must be of one type, to which
/// the caller casts them. ONNX Runtime does not compute with integers of 8 and
/// 16 bits; a Term computes with 32 instead, and casts back. Of booleans, `+`
/// and `max` are "or", `*` and `min` are "and".
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
  /// A number of this type, to compute with.
  Term number(double x) const;
  /// An operator of ONNX that takes this tensor first, then `others`, and gives
  /// one of this type.
  Term op(
      const std::string& type,
      const std::vector<Term>& others = {},
      const Attributes& attributes = {}) const;
  /// The same of an operator that takes shapes, places or axes too, which are
  /// integers.
  Term op_with(
      const std::string& type,
      const Values& others,
      const Attributes& attributes = {}) const;

  /// What the function of an operator returns.
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

/// Of booleans, as in PyTorch.
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
/// Towards 0.
Term trunc(const Term& x);
Term max(const Term& a, const Term& b);
Term min(const Term& a, const Term& b);
Term where(const Term& condition, const Term& a, const Term& b);
Term matmul(const Term& a, const Term& b);

/// Over these axes, counted from the front or the end; none for all.
Term sum(const Term& x, const Integers& axes, bool keepdim);
Term mean(const Term& x, const Integers& axes, bool keepdim);
/// The largest number, by "ReduceMax", or another of ONNX's operators that have
/// axes as an attribute.
Term reduce(
    const char* type,
    const Term& x,
    const Integers& axes,
    bool keepdim);

Term reshape(const Term& x, const Integers& sizes);
Term unsqueeze(const Term& x, int64_t axis);
Term squeeze(const Term& x, int64_t axis);
Term transpose(const Term& x, const Integers& order);
/// The elements at `places`, a tensor of integers, of one axis.
Term gather(const Term& x, const torch::Tensor& places, int64_t axis);

}  // namespace term

}  // namespace tern::onnx
