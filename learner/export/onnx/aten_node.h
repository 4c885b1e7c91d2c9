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

/// An operator of a trace. Its arguments have the names of PyTorch's
/// native_functions.yaml: `self`, `dim`, `keepdim`.
///
/// It notes which arguments have been read. Those that the function of an
/// operator neither reads nor ignores must have PyTorch's defaults, which
/// `check_unread` checks, so that no argument is overlooked.
class AtenNode {
 public:
  AtenNode(const jit::Node& node, OnnxGraph& graph)
      : node_(node), graph_(graph) {}

  /// Whether an argument is given, and not None. False too if this overload
  /// has no argument of that name.
  bool has(std::string_view name) const;

  // ---- Tensors and numbers, as inputs of ONNX operators ----

  /// \throws c10::ValueError if it is not given.
  Value* value(std::string_view name);
  /// Cast to a type.
  Value* value(std::string_view name, torch::ScalarType type);
  /// Null if it is not given.
  Value* optional_value(std::string_view name);
  /// The same, to compute with.
  Term term(std::string_view name);
  Term term(std::string_view name, torch::ScalarType type);
  /// A list of tensors; null for None in it.
  Values values(std::string_view name);
  /// Each cast to a type.
  Values values(std::string_view name, torch::ScalarType type);

  // ---- Constants, as attributes of ONNX operators ----

  /// \throws c10::ValueError if it is not given, or the model computes it.
  c10::IValue constant(std::string_view name);
  int64_t integer(std::string_view name);
  double number(std::string_view name);
  /// Empty if it is not given.
  std::string string(std::string_view name);
  /// A tensor that does not depend on the inputs; none if the model computes it.
  std::optional<torch::Tensor> known_tensor(std::string_view name) const;
  /// The rows of a tensor, its last dimension, where they do not depend on the
  /// inputs, though how often they are repeated may; none if they do.
  std::optional<torch::Tensor> known_rows(std::string_view name) const;
  /// False if it is not given.
  bool flag(std::string_view name);
  /// Of a list or of one integer; empty if it is not given.
  Integers integers(std::string_view name);
  /// A dimension of the tensor `of`, counted from the front.
  int64_t dimension(std::string_view name, std::string_view of = "self");

  // ---- About tensors ----

  Integers sizes(std::string_view name) const;
  int64_t rank(std::string_view name) const;
  torch::ScalarType type(std::string_view name) const;
  /// The type in which PyTorch compares or computes with these arguments: a
  /// number counts less than a tensor, and a tensor of no dimensions less too.
  torch::ScalarType common_type(
      std::initializer_list<std::string_view> names) const;

  /// The results; of an operator that gives a list, the parts of this list.
  at::ArrayRef<const Value*> outputs() const;
  Integers output_sizes() const { return sizes_of(outputs()[0]); }
  torch::ScalarType output_type() const { return type_of(outputs()[0]); }

  // ---- Arguments that are not read ----

  /// Arguments that do not change the result, or that the shape and type of
  /// the output tell. Names that this overload does not have are allowed.
  void ignore(std::initializer_list<std::string_view> names);
  /// \throws c10::ValueError if an argument that was neither read nor ignored
  ///         is not PyTorch's default, or false if it has none.
  void check_unread() const;

 private:
  /// The number of an argument, if this overload has it.
  std::optional<size_t> find(std::string_view name) const;
  /// Marks an argument as read and returns it; null if it is not given.
  const Value* read(std::string_view name);
  /// Returns an argument that this overload has, without marking it.
  const Value* argument(std::string_view name) const;

  const jit::Node& node_;
  OnnxGraph& graph_;
  std::set<size_t> read_;
};

}  // namespace tern::onnx
