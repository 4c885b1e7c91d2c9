#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/stack.h>
#include <c10/core/TensorImpl.h>

#include "tern/learner/model.h"

namespace c10 {
class OperatorHandle;
}

namespace tern {

/// Records which of a model's tensors stay fp32 in 16-bit training.
class KeptParameters {
 public:
  KeptParameters() = default;
  /// Lists only the tensors that stay fp32; the model's other tensors are
  /// unknown.
  KeptParameters(std::initializer_list<const c10::TensorImpl*> kept)
      : kept_(kept) {}

  void add(const torch::Tensor& tensor, bool is_kept);

  /// True if the tensor stays fp32.
  bool contains(const c10::TensorImpl* tensor) const {
    return kept_.contains(tensor);
  }
  /// True if the tensor is a parameter or buffer of the model that does not
  /// stay fp32.
  bool has_other(const c10::TensorImpl* tensor) const {
    return others_.contains(tensor);
  }
  /// True if no tensor stays fp32.
  bool empty() const { return kept_.empty(); }

  /// Records the weights with which LibTorch's MultiheadAttention projects
  /// queries, keys and values.
  void add_projections(const torch::nn::Module& module);
  bool is_projection(const c10::TensorImpl* tensor) const {
    return projections_.contains(tensor);
  }
  bool has_attention() const { return !projections_.empty(); }

 private:
  std::unordered_set<const c10::TensorImpl*> kept_, others_, projections_;
};

/// Returns the floating-point parameters and buffers of the named modules and
/// of all their submodules, including frozen weights of `add_lora`.
///
/// \param modules  Names as in the state dict ("layer3.0", "fc"), or globs
///                 ("layer*.norm"); names of parameters that are in no module
///                 ("pos_embed"); "input" means the model's inputs.
/// \param where  The caller's option, for the error message.
/// \throws c10::ValueError for a name that matches no module; lists the
///         existing modules.
KeptParameters kept_parameters(
    const Model& model,
    const std::vector<std::string>& modules,
    const char* where);

/// Returns the tensors among an operation's values, including tensors in lists.
Tensors tensors_of(std::span<const c10::IValue> values);
/// Converts the floating-point tensors, except kDouble, among the last `count`
/// values of a stack, including tensors in lists.
void to_type(torch::ScalarType type, torch::jit::Stack& stack, size_t count);

/// While it exists, forward passes of this thread compute the kept layers in
/// fp32 and all other layers in 16 bits.
///
/// For C++ modules, only operations can be observed, not the modules
/// themselves. A kept layer therefore begins with the first operation that has
/// a kept weight among its inputs, or a tensor that is computed only from kept
/// weights (`w.t()` or `w / w.norm()`). It ends with the next 16-bit layer: a
/// convolution, product, normalization, recurrent or embedding layer with
/// another weight. In between, operations on results of the kept layer compute
/// in fp32, without autocast: the scores of an attention, activations, residual
/// sums. Operations that a module runs before it uses its first weight are not
/// recognized as part of it.
///
/// After a kept layer, a 16-bit layer converts its inputs to the dtype of its
/// weights (BatchNorm, whose weights are fp32, to `dtype`). Results of a kept
/// layer are rounded where they are combined with 16-bit tensors: in the sum of
/// a later residual block, or where features are concatenated. Under autocast,
/// autocast makes both of these conversions. The backward pass is not affected.
///
/// LibTorch's MultiheadAttention can mask padding only in fp32 or fp64. 16-bit
/// scores that are about to be masked are therefore converted to fp32, up to
/// the product with the values.
class KeepFp32Guard {
 public:
  struct State;
  /// A position in a forward pass, for recomputing a part of it.
  struct Point {
    const KeptParameters* kept;
    std::optional<torch::ScalarType> dtype;
    bool is_in_kept_layer, is_kept_result;
  };

  /// \param kept  Must outlive the guard.
  /// \param dtype  Dtype of the other weights; unset under autocast, or if it
  ///               is unknown.
  explicit KeepFp32Guard(
      const KeptParameters& kept,
      std::optional<torch::ScalarType> dtype = {});
  /// \param x  The tensor that replaces the tensor for which `point` was
  ///           created.
  KeepFp32Guard(const Point& point, const torch::Tensor& x);
  ~KeepFp32Guard();
  KeepFp32Guard(const KeepFp32Guard&) = delete;

  /// Returns the position of this thread's innermost guard, which is about to
  /// compute with `x`; unset if there is no guard.
  static std::optional<Point> point(const torch::Tensor& x);

  /// Converts the arguments of an operation, which are the last values of the
  /// stack, to the dtypes in which the innermost guard computes it.
  static void convert(
      const c10::OperatorHandle& operation,
      torch::jit::Stack& stack);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tern
