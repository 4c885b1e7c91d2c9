#include "tern/learner/sparse_entries.h"

#include <fmt/ranges.h>

#include "tern/data/support/error_text.h"
#include "tern/kernels/check.h"

namespace tern {

namespace {

constexpr const char* kIndices = ".indices";
constexpr const char* kValues = ".values";
constexpr const char* kIsCoalesced = ".is_coalesced";

}  // namespace

// The parts are stored as they are. Coalescing would add values in a different
// order than the training does, and the resumed run would differ in a bit.
void insert_entry(
    StateDict& state,
    const std::string& name,
    const torch::Tensor& tensor) {
  if (!tensor.is_sparse()) {
    state.insert(name, tensor);
    return;
  }
  const torch::NoGradGuard no_grad;
  state.insert(name + kIndices, tensor._indices());
  state.insert(name + kValues, tensor._values());
  state.insert(
      name + kIsCoalesced,
      torch::scalar_tensor(tensor.is_coalesced() ? 1 : 0, torch::kLong));
}

torch::Tensor find_entry(
    const StateDict& state,
    const std::string& name,
    c10::IntArrayRef sizes,
    size_t* used) {
  if (const torch::Tensor* const dense = state.find(name)) {
    if (used) ++*used;
    return *dense;
  }
  const torch::Tensor* const indices = state.find(name + kIndices);
  const torch::Tensor* const values = state.find(name + kValues);
  const torch::Tensor* const is_coalesced = state.find(name + kIsCoalesced);
  if (!indices || !values || !is_coalesced) return {};
  if (used) *used += 3;
  const torch::NoGradGuard no_grad;
  try {
    // The state may be from a file, and indices out of range would corrupt
    // memory.
    const bool has_no_duplicates = is_coalesced->item<int64_t>() != 0;
    torch::_validate_sparse_coo_tensor_args(
        *indices,
        *values,
        sizes,
        has_no_duplicates);
    return torch::sparse_coo_tensor(
        *indices,
        *values,
        sizes,
        values->options().layout(torch::kSparse),
        has_no_duplicates);
  } catch (const c10::Error& error) {
    TERN_CHECK_VALUE(
        false,
        "[Learner] the saved \"{}\" is not a sparse tensor of shape [{}]: {}. "
        "Load the state of the same model.",
        name,
        fmt::join(sizes, ", "),
        reason_of(error));
  }
}

}  // namespace tern
