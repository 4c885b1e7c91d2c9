#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/types.h>

namespace tern::onnx {

namespace jit = torch::jit;

using jit::Value;
using Values = std::vector<Value*>;
using Integers = std::vector<int64_t>;
/// Attributes by ONNX's names: integers, booleans, floats, strings, and lists
/// of integers or strings.
using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

/// Throws a c10::ValueError. `translate` adds the operator and its module
/// before `why`.
[[noreturn]] void refuse(const std::string& why);

/// Returns the shape of a tensor of a trace; empty for other values.
Integers sizes_of(const Value* traced);
/// Returns the type of a tensor of a trace, or the type that PyTorch gives a
/// number.
torch::ScalarType type_of(const Value* traced);

/// The ONNX graph of a trace, which maps each value of the trace to a value of
/// the graph. Private to Tern, like everything in this folder except
/// export_onnx.h.
///
/// In a trace the sizes of inputs are plain numbers. To find these numbers, an
/// export translates two traces with inputs of different sizes. The first graph
/// records the numbers that it receives; the second makes the same calls in the
/// same order and compares the numbers. A number that differs is a size of the
/// inputs, and the graph reads it with Shape from a tensor that had this size
/// in both traces. Only the second graph is written.
///
/// The functions that translate operators need not handle this: they pass the
/// numbers of their own trace to `op`, `constant`, `integers` and
/// `shape_to_infer`, which handle it.
class OnnxGraph {
 public:
  /// \param first  The complete graph of the first trace; null for that graph
  ///               itself.
  /// \param half   Store large weights in fp16; computations stay in fp32.
  /// \param decompose_layer_norm  As in OnnxOptions.
  OnnxGraph(const OnnxGraph* first, bool half, bool decompose_layer_norm)
      : first_(first),
        half_(half),
        decompose_layer_norm_(decompose_layer_norm) {}

  bool decompose_layer_norm() const { return decompose_layer_norm_; }

  // ---- Operators ----

  /// Adds an ONNX operator and returns its only output.
  /// \param inputs  Null for an optional input that is left out.
  /// \throws c10::ValueError if an attribute differs between the two traces, as
  ///         ONNX's attributes are constants.
  Value*
  op(const std::string& type, Values inputs, const Attributes& attributes = {});
  /// Like `op`, for an operator with several outputs.
  Values op_with_outputs(
      size_t count,
      const std::string& type,
      Values inputs,
      const Attributes& attributes = {});
  /// Casts a value, unless `from` and `to` are the same type.
  Value* cast(Value* value, torch::ScalarType from, torch::ScalarType to);
  /// Transposes two dimensions of a tensor with `rank` dimensions.
  Value* swap_dimensions(Value* x, int64_t rank, int64_t dim0, int64_t dim1);

  // ---- Constants ----

  /// Adds a tensor. If its sizes differ between the traces, the graph computes
  /// it. This is possible if it repeats one number, row or other part, if it
  /// counts up as `arange` does, or if it has one number above and another
  /// below a diagonal, as from `triu`.
  Value* constant(const torch::Tensor& tensor, const std::string& name = "");
  Value* scalar(double number, torch::ScalarType type);
  /// Adds integers as a tensor, as ONNX requires for shapes and indices.
  /// Integers that are sizes of the inputs are computed.
  Value* integers(const Integers& numbers);
  /// Like `integers`, but with -1, which Reshape infers, in place of one size
  /// that depends on the inputs.
  Value* shape_to_infer(const Integers& sizes);

  // ---- Differences between the traces ----

  /// True if these numbers differ between the traces. If so, the rest of the
  /// operator is not compared with the first trace, which took a different
  /// path, and must read sizes from tensors of the graph with `sizes_at`.
  bool differ(const Integers& numbers);
  /// Adds operators that read the sizes of some dimensions of a tensor of the
  /// graph.
  Value* sizes_at(Value* tensor, const Integers& dimensions);

  // ---- Values of the trace ----

  /// Returns the value of the graph for a value of the trace; null for None.
  /// \throws c10::ValueError if no operator produced it.
  Value* value(const Value* traced);
  /// Sets the value of the graph for a value of the trace. From then on, sizes
  /// that depend on the inputs can be read from it.
  void set_value(const Value* traced, Value* value);
  void add_input(const Value* traced, const std::string& name);
  void add_output(const Value* traced, const std::string& name);
  /// Adds an output for a value without a counterpart in the trace.
  void add_output(
      Value* value,
      torch::ScalarType type,
      const Integers& sizes,
      const std::string& name);
  Values outputs() const { return graph_->outputs().vec(); }
  /// Removes the first outputs, which were only needed for a check.
  void drop_outputs(size_t count);
  /// Records a step of the translation.
  /// \throws c10::ValueError if the first trace had a different step here.
  void check_path(const std::string& step);

  /// Removes everything that no output depends on.
  void remove_unused();
  /// Returns the file's bytes.
  std::string serialize() const;
  /// Computes the outputs of the file with `interpret`. Uses full-precision
  /// weights even with `half`, so that outputs can be compared closely.
  /// \param inputs  On any device; the outputs are on the CPU.
  std::vector<torch::Tensor> compute(
      const std::vector<torch::Tensor>& inputs) const;

 private:
  /// Returns the value that the first graph received at this point, where this
  /// graph receives `own`.
  c10::IValue in_first_trace(const c10::IValue& own);
  /// Sets the type of a value of the graph and its sizes in this trace.
  void describe(Value* value, torch::ScalarType type, const Integers& sizes);
  /// Begins a step. Comparison with the first trace resumes if the last step
  /// turned it off.
  void begin_step();
  /// `op` without a comparison of attributes, for operators that only the
  /// second graph has, because they compute sizes.
  Values insert(
      size_t count,
      const std::string& type,
      const Values& inputs,
      const Attributes& attributes = {});
  Value* initializer(const torch::Tensor& tensor, std::string name = "");
  Value* integers(const Integers& first, const Integers& own);
  /// Computes a tensor that counts up along the dimensions that differ; null if
  /// `own` does not count up.
  Value* counting(const torch::Tensor& first, const torch::Tensor& own);
  /// Computes a matrix with one number above and one below a diagonal; null if
  /// `own` is not such a matrix.
  Value* triangular(const torch::Tensor& first, const torch::Tensor& own);
  /// Computes 0, 1, 2 and so on, up to a size, along one of `rank` dimensions.
  Value* places(int64_t first, int64_t own, int64_t dimension, int64_t rank);
  Value* integer(int64_t first, int64_t own);

  const OnnxGraph* first_;
  bool half_;
  bool decompose_layer_norm_;
  std::shared_ptr<jit::Graph> graph_ = std::make_shared<jit::Graph>();
  std::unordered_map<const Value*, Value*> values_;
  std::vector<std::string> input_names_;
  std::map<std::string, torch::Tensor> initializers_;
  std::set<std::string> halved_;  // names of fp16 weights
  /// The values that the two graphs compare, in order, grouped by steps of the
  /// translation.
  std::vector<std::vector<c10::IValue>> record_ = {{}};
  bool is_compared_ = true;
  /// Where to read a size: maps its numbers in the two traces to a tensor and a
  /// dimension.
  std::map<std::pair<int64_t, int64_t>, std::pair<Value*, int64_t>> sizes_;
  /// Names of dynamic dimensions, by tensor.
  std::unordered_map<std::string, std::unordered_map<int64_t, std::string>>
      dynamic_axes_;
};

}  // namespace tern::onnx
