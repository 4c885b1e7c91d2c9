#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <ATen/core/stack.h>
#include <c10/core/TensorImpl.h>

#include "tern/learner/model.h"

namespace tern {

/// The parameters of a model that stay fp32 in 16-bit training.
using KeptParameters = std::unordered_set<const c10::TensorImpl*>;

/// The floating parameters and buffers of the named modules, and of all modules
/// in them.
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

/// Whether an operation ("conv2d") converts what it is given to the type
/// of its weights, under a KeepFp32Guard.
bool computes_in_type_of_weights(std::string_view operation);

/// The tensors among the values of an operation, those of lists too.
Tensors tensors_of(std::span<const c10::IValue> values);
/// Converts the floating tensors among the last values of a stack, those of
/// lists too; doubles stay.
void to_type(torch::ScalarType type, torch::jit::Stack& stack, size_t count);

/// Forward passes with some layers in fp32 among 16-bit ones. While it lives,
/// in this thread, an operation with weights computes in the type of its
/// weights, or under autocast in fp32 if these are kept, and converts what it
/// is given. What it returns stays as it is: the operations after a kept layer
/// go on in fp32 until the next 16-bit weights.
class KeepFp32Guard {
 public:
  /// \param kept  Outlives the guard.
  explicit KeepFp32Guard(const KeptParameters& kept);
  ~KeepFp32Guard();
  KeepFp32Guard(const KeepFp32Guard&) = delete;

  /// Of the innermost guard of this thread; null: there is none.
  static const KeptParameters* current();

 private:
  const KeptParameters* outer_;
};

}  // namespace tern
