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

/// The tensors of a model, and which of them stay fp32 in 16-bit training.
class KeptParameters {
 public:
  KeptParameters() = default;
  /// Tensors that stay fp32, of a model of which nothing else is known.
  KeptParameters(std::initializer_list<const c10::TensorImpl*> kept)
      : kept_(kept) {}

  void add(const torch::Tensor& tensor, bool is_kept);

  /// Whether a tensor stays fp32.
  bool contains(const c10::TensorImpl* tensor) const {
    return kept_.contains(tensor);
  }
  /// Whether it is another parameter or buffer of the model.
  bool has_other(const c10::TensorImpl* tensor) const {
    return others_.contains(tensor);
  }
  /// Whether no tensor stays fp32.
  bool empty() const { return kept_.empty(); }

  /// Notes the weights with which LibTorch's MultiheadAttention projects
  /// queries, keys and values.
  void add_projections(const torch::nn::Module& module);
  bool is_projection(const c10::TensorImpl* tensor) const {
    return projections_.contains(tensor);
  }
  bool has_attention() const { return !projections_.empty(); }

 private:
  std::unordered_set<const c10::TensorImpl*> kept_, others_, projections_;
};

/// The floating parameters and buffers of the named modules, and of all modules
/// in them; frozen weights of `add_lora` too.
///
/// \param modules  Names as in the state dict ("layer3.0", "fc"), or globs of
///                 them ("layer*.norm"); parameters that are in no module
///                 ("pos_embed"); "input" stands for the model's inputs.
/// \param where    Whose option this is, for the message.
/// \throws c10::ValueError for a name that fits no module; lists those there
///         are.
KeptParameters kept_parameters(
    const Model& model,
    const std::vector<std::string>& modules,
    const char* where);

/// The tensors among the values of an operation, those of lists too.
Tensors tensors_of(std::span<const c10::IValue> values);
/// Converts the floating tensors among the last values of a stack, those of
/// lists too; doubles stay.
void to_type(torch::ScalarType type, torch::jit::Stack& stack, size_t count);

/// Forward passes with some layers in fp32 among 16-bit ones, for this thread,
/// while it lives.
///
/// Operations are all that can be seen of C++ modules, so a kept layer begins
/// with the first operation that has a kept weight among its inputs, or what is
/// made of kept weights alone (`w.t()`, `w / w.norm()`), and ends with the next
/// 16-bit layer: a convolution, product, normalization, recurrent or embedding
/// layer with another weight. From one to the other, operations with what the
/// kept layer has returned compute in fp32, out of autocast's reach: the scores
/// of an attention, activations, residual sums. What a module does before its
/// first weight is not seen to be in it.
///
/// Behind it, a 16-bit layer converts what it is given to the type of its
/// weights (BatchNorm, whose weights are fp32, to `dtype`), and what a kept
/// layer has returned is rounded where it meets 16-bit tensors: in the sum of a
/// later residual block, or where features are concatenated. Under autocast
/// both are left to autocast. Nothing changes in backward.
///
/// LibTorch's MultiheadAttention masks padding in fp32 or fp64 alone: 16-bit
/// scores that it is about to mask become fp32, up to the product with the
/// values.
class KeepFp32Guard {
 public:
  struct State;
  /// A point of a forward pass, for computing a part of it again.
  struct Point {
    const KeptParameters* kept;
    std::optional<torch::ScalarType> dtype;
    bool is_in_kept_layer, is_kept_result;
  };

  /// \param kept  Outlives the guard.
  /// \param dtype  Of the other weights; unset: under autocast, or unknown.
  explicit KeepFp32Guard(
      const KeptParameters& kept,
      std::optional<torch::ScalarType> dtype = {});
  /// \param x  What has taken the place of the tensor that `point` was made for.
  KeepFp32Guard(const Point& point, const torch::Tensor& x);
  ~KeepFp32Guard();
  KeepFp32Guard(const KeepFp32Guard&) = delete;

  /// Where the innermost guard of this thread is, about to compute with `x`;
  /// unset: there is none.
  static std::optional<Point> point(const torch::Tensor& x);

  /// Converts the arguments of an operation, the last values of the stack, to
  /// the types in which the innermost guard lets it compute.
  static void convert(
      const c10::OperatorHandle& operation,
      torch::jit::Stack& stack);

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tern
