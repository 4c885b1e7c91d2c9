#include "tern/callbacks/saved_value.h"

#include <fmt/format.h>
#include <torch/types.h>

namespace tern {

const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name) {
  const torch::Tensor* value = state.find(name);
  TORCH_CHECK_VALUE(
      value,
      fmt::format(
          "[{0}] the saved state has no \"{1}\"; expected that of a {0}.",
          owner,
          name));
  return *value;
}

}  // namespace tern
