#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

#include "tern/learner/export/onnx/onnx_graph.h"
#include "tern/learner/export/onnx/term.h"

namespace tern::onnx {

/// An operator of a trace. Its arguments have the names in PyTorch's
/// native_functions.yaml: `self`, `dim`, `keepdim`.
///
/// Records which arguments have been read, so that no argument is overlooked:
/// `check_unread` requires PyTorch's default for each argument that was neither
/// read nor ignored.
class AtenNode {
 public:
  AtenNode(const jit::Node& node, OnnxGraph& graph)
      : node_(node), graph_(graph) {}

  /// True if an argument is given and is not None. False if this overload has
  /// no argument of that name.
  bool has(std::string_view name) const;

  // ---- Tensors and numbers, as inputs of ONNX operators ----

  /// \throws c10::ValueError if it is not given.
  Value* value(std::string_view name);
  /// Casts the value to a type.
  Value* value(std::string_view name, torch::ScalarType type);
  /// Null if it is not given.
  Value* optional_value(std::string_view name);
  /// Returns the value as a Term, for computations.
  Term term(std::string_view name);
  Term term(std::string_view name, torch::ScalarType type);
  /// Returns a list of tensors, with null for None.
  Values values(std::string_view name);
  /// Casts each value to a type.
  Values values(std::string_view name, torch::ScalarType type);

  // ---- Constants, as attributes of ONNX operators ----

  /// \throws c10::ValueError if it is not given, or if the model computes it.
  c10::IValue constant(std::string_view name);
  int64_t integer(std::string_view name);
  double number(std::string_view name);
  /// Empty if it is not given.
  std::string string(std::string_view name);
  /// Returns a tensor that does not depend on the inputs; unset if the model
  /// computes it.
  std::optional<torch::Tensor> known_tensor(std::string_view name) const;
  /// Returns the rows (last dimension) of a tensor if they do not depend on the
  /// inputs, even if the number of times that they are repeated does; unset if
  /// the rows depend on the inputs.
  std::optional<torch::Tensor> known_rows(std::string_view name) const;
  /// False if it is not given.
  bool flag(std::string_view name);
  /// From a list or a single integer; empty if it is not given.
  Integers integers(std::string_view name);
  /// Returns a dimension of the tensor `of`, counted from the front.
  int64_t dimension(std::string_view name, std::string_view of = "self");

  // ---- About tensors ----

  Integers sizes(std::string_view name) const;
  int64_t rank(std::string_view name) const;
  torch::ScalarType type(std::string_view name) const;
  /// Returns the type in which PyTorch compares or computes with these
  /// arguments, by PyTorch's type promotion: tensors with dimensions take
  /// precedence over 0-dim tensors, and those over numbers.
  torch::ScalarType common_type(
      std::initializer_list<std::string_view> names) const;

  /// Returns the results; for an operator that returns a list, its elements.
  at::ArrayRef<const Value*> outputs() const;
  Integers output_sizes() const { return sizes_of(outputs()[0]); }
  torch::ScalarType output_type() const { return type_of(outputs()[0]); }

  // ---- Arguments that are not read ----

  /// Marks arguments that do not change the result, or whose effect is visible
  /// in the shape and type of the output. Names that this overload does not
  /// have are allowed.
  void ignore(std::initializer_list<std::string_view> names);
  /// \throws c10::ValueError if an argument that was neither read nor ignored
  ///         differs from PyTorch's default, or from false if it has no
  ///         default.
  void check_unread() const;

 private:
  /// Returns the index of an argument, if this overload has it.
  std::optional<size_t> find(std::string_view name) const;
  /// Marks an argument as read and returns it; null if it is not given.
  const Value* read(std::string_view name);
  /// Returns an argument that this overload has, without marking it as read.
  const Value* argument(std::string_view name) const;

  const jit::Node& node_;
  OnnxGraph& graph_;
  std::set<size_t> read_;
};

}  // namespace tern::onnx
