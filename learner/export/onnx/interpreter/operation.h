#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

namespace tern::onnx {

using Integers = std::vector<int64_t>;

/// An operator of an ONNX graph with its input tensors. Inputs are read by
/// position and attributes by name, as in the specification.
///
/// Checks everything that is read, because ONNX Runtime rejects types that the
/// specification does not allow. Errors are c10::ValueErrors, to which
/// `interpret` adds the operator.
class Operation {
 public:
  Operation(const torch::jit::Node& node, std::vector<torch::Tensor> inputs)
      : node_(node), inputs_(std::move(inputs)) {}

  // ---- Inputs ----

  size_t count() const { return inputs_.size(); }
  size_t output_count() const { return node_.outputs().size(); }
  /// True if an optional input is given.
  bool has(size_t i) const;
  const torch::Tensor& input(size_t i = 0) const;
  const std::vector<torch::Tensor>& inputs() const { return inputs_; }

  /// These return an input and check that it has a type that the specification
  /// lists.
  const torch::Tensor& floats(size_t i = 0) const;
  const torch::Tensor& numbers(size_t i = 0) const;  // floats or integers
  const torch::Tensor& booleans(size_t i = 0) const;
  const torch::Tensor& places(size_t i) const;  // 32 or 64 bits
  /// Returns a shape, axes or a similar list: one dimension, 64 bits.
  Integers integers(size_t i) const;
  /// Checks that all inputs have the same type, as operands must.
  void require_one_type() const;

  // ---- Attributes ----

  int64_t integer(const char* name, int64_t usual) const;
  /// ONNX stores attributes in fp32.
  double number(const char* name, double usual) const;
  std::string text(const char* name, const char* usual) const;
  /// Empty if they are not given.
  std::vector<std::string> texts(const char* name) const;
  Integers list(const char* name) const;
  /// \return  A single zero in fp32 if it is not given.
  torch::Tensor tensor(const char* name) const;
  /// Returns a dimension of the first input, counted from the front.
  int64_t axis(int64_t usual) const;

 private:
  const torch::jit::Node& node_;
  std::vector<torch::Tensor> inputs_;
};

using Compute = std::function<std::vector<torch::Tensor>(const Operation&)>;
/// Functions by ONNX's names: "Add".
using ComputeTable = std::map<std::string, Compute>;

/// Returns the index of a dimension counted from the front.
int64_t from_front(int64_t dimension, int64_t rank);

void add_numbers(ComputeTable& table);
void add_reductions(ComputeTable& table);
void add_shapes(ComputeTable& table);
void add_places(ComputeTable& table);
void add_layers(ComputeTable& table);
void add_images(ComputeTable& table);
void add_boxes(ComputeTable& table);
void add_recurrent(ComputeTable& table);

}  // namespace tern::onnx
