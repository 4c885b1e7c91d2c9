#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

namespace tern::onnx {

using torch::jit::Value;
using Values = std::vector<Value*>;
using Ints = std::vector<int64_t>;
using Type = std::optional<torch::ScalarType>;
/// A size in each of the two traces that an export makes, with inputs of
/// different sizes: where they differ, the size is one of the inputs'.
using Size = std::array<int64_t, 2>;
using Sizes = std::vector<Size>;
/// Integers, booleans, floats, strings and lists of integers.
using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

/// Puts the operators of two traces of a model, of inputs of different sizes,
/// into an ONNX graph. `traced` values are the first trace's. Private to Tern.
class Translator {
 public:
  /// \param half  Stores the large weights in fp16; all computes in fp32.
  Translator(const std::array<torch::jit::Module, 2>& traces, bool half);
  /// \return the trace's outputs, for `output`.
  /// \throws c10::ValueError naming an operator that cannot be written, and the
  ///         module it is in.
  Values run(const std::vector<std::string>& inputs);
  void output(const std::string& name, const Value* traced);
  /// The file's bytes.
  std::string serialize() const;

  // ---- For rows: the operator's arguments, by number ----

  [[noreturn]] void refuse(const std::string& why) const;
  size_t count() const { return node_->inputs().size(); }
  bool has(size_t i) const;  // that it is there, and not None
  Value* in(size_t i, Type type = {}) { return value(node_->input(i), type); }
  Value* transposed(size_t i);  // the last two dimensions
  Values list(size_t i);
  Sizes sizes(size_t i) const { return sizes_of(node_->input(i)); }
  torch::ScalarType type(size_t i) const { return type_of(node_->input(i)); }
  c10::IValue same(size_t i) const;  // a constant
  bool flag(size_t i) const { return has(i) && same(i).toBool(); }
  int64_t integer(size_t i) const { return same(i).toInt(); }
  double number(size_t i) const { return same(i).toScalar().toDouble(); }
  Ints ints(size_t i, size_t count = 0) const;  // repeated up to `count`
  int64_t axis(size_t i) const;                 // of argument 0, from the front
  /// The results, or what a list of tensors is taken apart into.
  at::ArrayRef<Value*> out() const;
  Sizes out_sizes() const { return sizes_of(out()[0]); }
  torch::ScalarType out_type() const { return type_of(out()[0]); }
  Sizes sizes_of(const Value* traced) const;

  // ---- What it becomes; a null input is one that is left out ----

  Values ops(const std::string&, Values, const Attributes&, size_t outputs);
  Value* op(const std::string& name, Values in, const Attributes& how = {}) {
    return ops(name, std::move(in), how, 1)[0];
  }
  Value* constant(const torch::Tensor& x) { return constant({x, x}); }
  Value* int_list(const Ints& x) { return constant(torch::tensor(x)); }
  Value* shape(const Sizes& sizes);  // [rank] int64
  void give(Value* value, const Value* traced);
  void give(const Values& results);

 private:
  static torch::ScalarType type_of(const Value* traced);
  Value* value(const Value* traced, Type type = {});  // null for None
  std::array<c10::IValue, 2> known(const Value* traced) const;
  using Both = std::array<torch::Tensor, 2>;
  Value* constant(const Both& both, std::string name = "constant");
  Value* cast(Value* value, torch::ScalarType type);
  Value* size(const Size& size);
  void describe(Value* value, const Value* traced);

  std::array<std::shared_ptr<torch::jit::Graph>, 2> traces_;
  std::unordered_map<const Value*, const Value*> twins_;  // of the second trace
  torch::jit::Node* node_;                                // the operator
  std::unordered_map<const Value*, Value*> values_;
  std::map<Size, std::pair<Value*, int64_t>> places_;  // and the dimension

  std::shared_ptr<torch::jit::Graph> graph_;
  bool half_;
  std::map<std::string, torch::Tensor> initializers_;
  std::unordered_map<std::string, std::unordered_map<int64_t, std::string>>
      dynamic_axes_;  // of inputs and outputs
};

/// Writes the operator at which it is.
/// \param aten  PyTorch's name without "aten::", and the _ of what works in
///              place.
/// \return false for an unknown one.
bool put_row(Translator& t, const std::string& aten);

/// Writes a formula of ONNX operators: Mul(0,Sigmoid(0)), Softmax(0,axis=1). A
/// number is an argument of PyTorch's operator, which must be there unless ? is
/// behind it; after ^ in the result's type, after % in the common one of two,
/// after ! with its last two dimensions transposed. @1 are integers, [1 the
/// tensors of a list, #0.5 is a number, $ the result's shape, _ nothing. Of an
/// attribute, .1 is a float, -1 minus the length of a list, +1 the window of a
/// weight, *2 an integer for each of its dimensions, or else argument 1's, &3
/// the same for both ends, 'CRD a word. Arguments behind ~ do not matter; those
/// that are left out have to be off.
void formula(Translator& t, const std::string& text);

}  // namespace tern::onnx
