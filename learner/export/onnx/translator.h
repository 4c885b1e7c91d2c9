#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include "tern/learner/export/embedded_torchscript.h"

namespace tern::onnx {

namespace jit = torch::jit;

using jit::Graph, jit::Node, jit::Value;
using Text = std::string;
using Values = std::vector<Value*>;
using Ints = std::vector<int64_t>;
using Type = std::optional<torch::ScalarType>;
using Names = std::vector<Text>;
/// Integers, booleans, floats, strings and lists of integers.
using Attributes = std::vector<std::pair<Text, c10::IValue>>;

/// Puts the operators of a trace into an ONNX graph. An export translates two
/// traces, of inputs of different sizes, and writes the second: a number that
/// differs from the one in its place in the first is a size of the inputs, and
/// is read from what has it. Rows do not see that. Private to Tern.
class Translator {
 public:
  /// \param first  Has run with the first trace; null for that one.
  /// \param half   Stores large weights in fp16; all computes in fp32.
  Translator(const Translator* first, bool half) : first_(first), half_(half) {}
  /// \return The file's bytes, of the second.
  /// \throws c10::ValueError naming an operator that cannot be written, and the
  ///         module it is in.
  Text run(Graph& trace, const Names& inputs, const Names& outputs);

  // ---- For rows: the operator's arguments, by number ----

  [[noreturn]] void refuse(const Text& why) const;
  bool has(size_t i) const {  // that it is there, and not None
    return i < node_->inputs().size() && !node_->input(i)->mustBeNone();
  }
  Value* in(size_t i, Type type = {}) { return value(node_->input(i), type); }
  Values list(size_t i) {
    const Value* const given = node_->input(i);
    Values values;
    if (const auto all = jit::toIValue(given)) {
      for (const c10::IValue& x : all->toListRef()) {
        values.push_back(x.isNone() ? nullptr : constant(x.toTensor()));
      }
    } else {
      for (const Value* x : given->node()->inputs()) values.push_back(value(x));
    }
    return values;
  }
  Ints sizes(size_t i) const { return sizes_of(node_->input(i)); }
  torch::ScalarType type(size_t i) const { return type_of(node_->input(i)); }
  c10::IValue known(size_t i) const { return known(node_->input(i)); }
  int64_t integer(size_t i) const { return known(i).toInt(); }
  bool flag(size_t i) const { return has(i) && known(i).toBool(); }
  Ints ints(size_t i) const {
    if (!has(i)) return {};
    return known(i).isInt() ? Ints{integer(i)} : known(i).toIntVector();
  }
  int64_t axis(size_t i) const {  // of argument 0, from the front
    return integer(i) < 0 ? integer(i) + std::ssize(sizes(0)) : integer(i);
  }
  at::ArrayRef<Value*> out() const {  // or what a list is taken apart into
    const Value* const first = node_->output(0);
    const bool is_list = first->type()->kind() == c10::TypeKind::ListType;
    return is_list ? first->uses()[0].user->outputs() : node_->outputs();
  }
  static Ints sizes_of(const Value* traced) {
    const auto type = traced->type()->cast<c10::TensorType>();
    return type ? type->sizes().concrete_sizes().value_or(Ints()) : Ints();
  }
  static torch::ScalarType type_of(const Value* traced) {
    const auto type = traced->type()->cast<c10::TensorType>();
    if (type && type->scalarType()) return *type->scalarType();
    const bool is_int = traced->type() != c10::FloatType::get();
    return is_int ? torch::kLong : torch::kFloat;
  }

  // ---- What it becomes; a null input is one that is left out ----

  Values ops(const Text& name, Values in, const Attributes& how, size_t count) {
    while (!in.back()) in.pop_back();
    if (name == "Add" && in.size() == 1) return in;  // no bias
    const auto kind = c10::Symbol::fromQualString("onnx::" + name);
    Node* const node = graph_->insertNode(graph_->create(kind, count));
    for (Value* x : in) {
      if (!x) x = graph_->insertNode(graph_->createNone())->output();
      node->addInput(x);
    }
    for (const auto& [key, x] : how) {
      if (x.isIntList() && in_first(x) != x) refuse("its " + key + kOther);
      const c10::Symbol symbol = c10::Symbol::attr(key);
      if (x.isDouble()) node->f_(symbol, x.toDouble());
      if (x.isIntList()) node->is_(symbol, x.toIntVector());
      if (x.isString()) node->s_(symbol, x.toStringRef());
      if (x.isInt() || x.isBool()) node->i_(symbol, x.toScalar().toLong());
    }
    return node->outputs().vec();
  }
  Value* op(const Text& name, Values in, const Attributes& how = {}) {
    return ops(name, std::move(in), how, 1)[0];
  }
  // It may be longer or shorter where it repeats one number.
  Value* constant(const torch::Tensor& x, const Text& name = "") {
    const torch::Tensor first = in_first(x).toTensor();
    torch::Tensor part = x;
    for (int64_t i = 0; i < x.dim(); ++i) {
      if (first.size(i) != x.size(i)) part = part.narrow(i, 0, 1);
    }
    const bool is_alike = torch::equal(part.expand_as(first), first) &&
                          torch::equal(part.expand_as(x), x);
    if (!is_alike) refuse(Text("a tensor that it takes") + kOther);
    Value* const value = initializer(part, name);
    if (part.sizes() == x.sizes()) return value;
    return op("Expand", {value, sizes(first.sizes().vec(), x.sizes().vec())});
  }
  /// \param infers  -1 may stand for one that depends on the inputs.
  Value* shape(const Ints& own, bool infers = false) {
    return sizes(in_first(own).toIntVector(), own, infers);
  }
  /// ONNX operators: Mul(0,Sigmoid(0)), Softmax(0,axis=1). A number is an
  /// argument of PyTorch's operator, which must be there unless ? is behind it;
  /// after ^ in the result's type, after % in the common one of two, after !
  /// with its last two dimensions swapped, or after / arguments 1 and 2. @1 are
  /// integers, [1 the tensors of a list, #0.5 is a number, 'CRD a word, $ the
  /// result's shape, _ nothing. Arguments behind ~, digits of base 16, do not
  /// matter; others that are left out have to be as PyTorch has them by
  /// default.
  Values formula(Text text);

 private:
  /// TensorProto's numbers, in the order of ScalarType.
  static constexpr int64_t kTypes[] =
      {2, 3, 5, 6, 7, 10, 1, 11, 0, 0, 0, 9, 0, 0, 0, 16};
  static constexpr const char* kOther =
      " is another for a batch or image of another size; expected the same, or "
      "sizes seen before. Export with .dynamic_batch and .dynamic_size = false";

  Values row(const Text& aten);  // in rows.cpp, by name
  Values terms(const Text& x, Type own = {});
  c10::IValue attribute(const Text& key, const Text& x);
  size_t argument(const Text& x);

  c10::IValue known(const Value* traced) const {
    if (const auto value = jit::toIValue(traced)) return *value;
    refuse("it takes a result that ONNX does not give as a constant");
  }
  Value* value(const Value* traced, Type type = {}) {  // null for None
    if (traced->mustBeNone()) return nullptr;
    const torch::ScalarType own = type_of(traced);
    if (!values_.contains(traced)) {
      const c10::IValue x = known(traced);
      values_[traced] = constant(
          x.isTensor() ? x.toTensor() : torch::full({}, x.toScalar(), own),
          traced->hasDebugName() ? traced->debugName() : "");
    }
    Value* const value = values_.at(traced);
    if (type.value_or(own) == own) return value;
    return op("Cast", {value}, {{"to", type_number(*type)}});
  }
  int64_t type_number(torch::ScalarType type) const {
    const auto i = static_cast<size_t>(type);
    if (i < std::size(kTypes) && kTypes[i] > 0) return kTypes[i];
    refuse(Text("ONNX has no numbers of its type, ") + torch::toString(type));
  }
  Value* initializer(const torch::Tensor& x, Text name = "") {
    // Unlike any weight's.
    if (name.empty()) name = fmt::format(".{}", initializers_.size());
    const bool is_half = half_ && x.scalar_type() == torch::kFloat &&
                         x.numel() >= 1'000 && fits_half(x);
    initializers_[name] = is_half ? x.to(torch::kHalf) : x;
    Value* const value = graph_->addInput(name);
    value->setType(c10::TensorType::create(initializers_[name]));
    return is_half ? op("Cast", {value}, {{"to", kTypes[6]}}) : value;
  }

  // ---- The two traces ----

  c10::IValue in_first(const c10::IValue& value) {
    log_.push_back(value);
    if (first_ == nullptr) return value;
    c10::IValue other = first_->log_.at(log_.size() - 1);
    const bool is_same = !value.isString() || other == value;
    TORCH_CHECK_VALUE(is_same, "[export_onnx] the path of the model", kOther);
    return other;
  }
  // Sizes that depend on the inputs can be read there.
  void give(Value* value, const Value* traced) {
    values_[traced] = value;
    type_number(type_of(traced));
    const Ints own = sizes_of(traced), first = in_first(own).toIntVector();
    const Text name = value->debugName();
    for (int64_t i = 0; i < std::ssize(own); ++i) {
      if (own[i] == first[i]) continue;
      places_.try_emplace({first[i], own[i]}, value, i);
      const Text nth = fmt::format("{}_dim_{}", name, i);
      dynamic_axes_[name][i] = i == 0 ? "batch" : nth;
    }
    value->setType(
        c10::TensorType::createContiguous(type_of(traced), torch::kCPU, own));
  }
  Value* size(int64_t first, int64_t own) {  // [1]
    if (first == own) return initializer(torch::tensor({own}));
    for (const auto& [part, place] : places_ | std::views::reverse) {
      const int64_t times = own / std::max<int64_t>(part.second, 1);
      if (times * part.first != first || times * part.second != own) continue;
      Value* const at = initializer(torch::tensor({place.second}));
      Value* const whole = op("Gather", {op("Shape", {place.first}), at});
      if (times == 1) return whole;
      return op("Mul", {whole, initializer(torch::tensor({times}))});
    }
    refuse(fmt::format("a size, {} and {},{}", first, own, kOther));
  }
  Value* sizes(Ints first, Ints own, bool infers = false) {
    for (size_t i = own.size(); infers && i-- > 0;) {
      infers = first[i] == own[i];
      if (!infers) first[i] = own[i] = -1;
    }
    if (first == own) return initializer(torch::tensor(own));
    Values parts;
    for (size_t i = 0; i < own.size(); ++i) {
      parts.push_back(size(first[i], own[i]));
    }
    return op("Concat", parts, {{"axis", 0}});
  }

  Node* node_ = nullptr;  // the operator
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::unordered_map<const Value*, Value*> values_;
  const Translator* first_;
  std::vector<c10::IValue> log_;  // of what the two compare, in order
  /// Sizes in both traces, and the dimension of what has them.
  std::map<std::pair<int64_t, int64_t>, std::pair<Value*, int64_t>> places_;
  std::unordered_map<Text, std::unordered_map<int64_t, Text>> dynamic_axes_;
  std::set<size_t> used_;     // arguments in a formula
  std::vector<Values> made_;  // by the operators in it
  bool half_;
  std::map<Text, torch::Tensor> initializers_;
};

/// PyTorch's operators that there are rows for: |abs|erf
Text row_names();

}  // namespace tern::onnx
