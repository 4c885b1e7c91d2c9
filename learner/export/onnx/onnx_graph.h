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
/// By ONNX's names: integers, booleans, floats, strings, and lists of integers
/// or strings.
using Attributes = std::vector<std::pair<std::string, c10::IValue>>;

/// Throws a c10::ValueError. `translate` puts the operator that it was about,
/// and the module that this is in, before `why`.
[[noreturn]] void refuse(const std::string& why);

/// The shape of a tensor of a trace; empty for what is not a tensor.
Integers sizes_of(const Value* traced);
/// The type of a tensor of a trace, or the one that PyTorch gives a number.
torch::ScalarType type_of(const Value* traced);

/// The ONNX graph that a trace becomes, with the value that each value of the
/// trace has in it. Private to Tern, like all of this folder but export_onnx.h.
///
/// A trace has the sizes of its inputs as plain numbers. To find out which
/// numbers are such sizes, an export translates two traces, of inputs of
/// different sizes. The first graph records what it is given; the second, which
/// makes the same calls in the same order, compares. A number that differs is a
/// size of the inputs, and the graph reads it with Shape from a tensor that had
/// this size in both traces. Only the second graph is written.
///
/// The functions of operators need not think of that: they pass the numbers of
/// their own trace to `op`, `constant` and `shape`, which do it.
class OnnxGraph {
 public:
  /// \param first  The graph of the first trace, complete; null for that one.
  /// \param half   Stores large weights in fp16; all computes in fp32.
  /// \param decompose_layer_norm  As in OnnxOptions.
  OnnxGraph(const OnnxGraph* first, bool half, bool decompose_layer_norm)
      : first_(first),
        half_(half),
        decompose_layer_norm_(decompose_layer_norm) {}

  bool decompose_layer_norm() const { return decompose_layer_norm_; }

  // ---- Operators ----

  /// Adds an operator of ONNX, and returns its one output.
  /// \param inputs  Null for an optional input that is left out.
  /// \throws c10::ValueError if an attribute differs between the two traces:
  ///         ONNX has attributes as constants.
  Value*
  op(const std::string& type, Values inputs, const Attributes& attributes = {});
  /// The same of an operator with several outputs.
  Values op_with_outputs(
      size_t count,
      const std::string& type,
      Values inputs,
      const Attributes& attributes = {});
  /// Casts to a type, where it is another one than `from`.
  Value* cast(Value* value, torch::ScalarType from, torch::ScalarType to);
  /// Transposes two dimensions of a tensor that has `rank` of them.
  Value* swap_dimensions(Value* x, int64_t rank, int64_t dim0, int64_t dim1);

  // ---- Constants ----

  /// A tensor. If its sizes differ between the traces, the graph computes it,
  /// where it is one number, row or the like repeated, counts up as `arange`
  /// does, or has two numbers above and below a diagonal, as `triu` gives it.
  Value* constant(const torch::Tensor& tensor, const std::string& name = "");
  Value* scalar(double number, torch::ScalarType type);
  /// Integers as a tensor, which ONNX wants for shapes and places; those that
  /// are sizes of the inputs are computed.
  Value* integers(const Integers& numbers);
  /// The same, with -1 in place of one size that depends on the inputs, which
  /// Reshape infers.
  Value* shape_to_infer(const Integers& sizes);

  // ---- What differs between the traces ----

  /// Whether these numbers do. If so, the rest of the operator is not compared
  /// with the first trace, for which it took another path: from there on it has
  /// to read sizes with `sizes_at`, from tensors of the graph.
  bool differ(const Integers& numbers);
  /// The sizes of some dimensions of a tensor of the graph, as its operators
  /// read them.
  Value* sizes_at(Value* tensor, const Integers& dimensions);

  // ---- Values of the trace ----

  /// What a value of the trace is in this graph; null for None.
  /// \throws c10::ValueError if no operator gave it.
  Value* value(const Value* traced);
  /// Says what a value of the trace is in this graph. Its sizes that depend on
  /// the inputs can be read there from now on.
  void set_value(const Value* traced, Value* value);
  void add_input(const Value* traced, const std::string& name);
  void add_output(const Value* traced, const std::string& name);
  /// The same of a value that is not one of the trace.
  void add_output(
      Value* value,
      torch::ScalarType type,
      const Integers& sizes,
      const std::string& name);
  Values outputs() const { return graph_->outputs().vec(); }
  /// Takes the first outputs back, which served for a check alone.
  void drop_outputs(size_t count);
  /// Records a step of the translation.
  /// \throws c10::ValueError if the first trace had another one here.
  void check_path(const std::string& step);

  /// Takes out what no output depends on.
  void remove_unused();
  /// The file's bytes.
  std::string serialize() const;
  /// What the file computes, by `interpret`; of `half` too with whole weights,
  /// so that what it gives can be compared closely.
  /// \param inputs  On any device; the results are on the CPU.
  std::vector<torch::Tensor> compute(
      const std::vector<torch::Tensor>& inputs) const;

 private:
  /// What the first graph was given where this one is given `own`.
  c10::IValue in_first_trace(const c10::IValue& own);
  /// Says what a value of the graph is, and what its sizes are in this trace.
  void describe(Value* value, torch::ScalarType type, const Integers& sizes);
  /// The traces may differ within a step; the next one is compared again.
  void begin_step();
  /// `op` without a comparison of its attributes, for operators that only the
  /// second graph has: those that compute sizes.
  Values insert(
      size_t count,
      const std::string& type,
      const Values& inputs,
      const Attributes& attributes = {});
  Value* initializer(const torch::Tensor& tensor, std::string name = "");
  Value* integers(const Integers& first, const Integers& own);
  /// A tensor that counts up along the dimensions that differ; null if `own`
  /// does not.
  Value* counting(const torch::Tensor& first, const torch::Tensor& own);
  /// A matrix of two numbers above and below a diagonal; null if `own` is none.
  Value* triangular(const torch::Tensor& first, const torch::Tensor& own);
  /// 0, 1, 2 and so on, up to a size, along one of `rank` dimensions.
  Value* places(int64_t first, int64_t own, int64_t dimension, int64_t rank);
  Value* integer(int64_t first, int64_t own);

  const OnnxGraph* first_;
  bool half_;
  bool decompose_layer_norm_;
  std::shared_ptr<jit::Graph> graph_ = std::make_shared<jit::Graph>();
  std::unordered_map<const Value*, Value*> values_;
  std::vector<std::string> input_names_;
  std::map<std::string, torch::Tensor> initializers_;
  std::set<std::string> halved_;  // those that the file has in fp16
  /// What the two graphs compare, in order, by steps of the translation.
  std::vector<std::vector<c10::IValue>> record_ = {{}};
  bool is_compared_ = true;
  /// Where a size can be read: by its numbers in the two traces, a tensor and
  /// its dimension.
  std::map<std::pair<int64_t, int64_t>, std::pair<Value*, int64_t>> sizes_;
  /// Names of dynamic dimensions, by tensor.
  std::unordered_map<std::string, std::unordered_map<int64_t, std::string>>
      dynamic_axes_;
};

}  // namespace tern::onnx
