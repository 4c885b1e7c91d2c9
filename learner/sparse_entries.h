#pragma once

#include <cstddef>
#include <string>

#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern {

// Files hold dense tensors only, but an embedding with `sparse(true)` has
// sparse gradients, and torch::optim::SGD a sparse momentum.

/// Inserts a tensor as entry `name`. A sparse tensor becomes the dense entries
/// "name.indices", "name.values" and "name.is_coalesced", which share its
/// memory.
void insert_entry(
    StateDict& state,
    const std::string& name,
    const torch::Tensor& tensor);

/// Returns the tensor that `insert_entry` inserted, on the device of its entry
/// or entries.
/// \param sizes  Of the tensor, if it is sparse.
/// \param used   If not null, increased by the number of its entries.
/// \return       Undefined if there is no such tensor.
/// \throws c10::ValueError if the entries are not a sparse tensor of `sizes`.
torch::Tensor find_entry(
    const StateDict& state,
    const std::string& name,
    c10::IntArrayRef sizes,
    size_t* used = nullptr);

}  // namespace tern
