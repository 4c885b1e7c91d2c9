#pragma once

#include <string>

#include <torch/types.h>

#include "tern/learner/callback.h"

namespace tern {

/// `state[name]`, for load_state_dict.
/// \throws c10::ValueError that names `owner` if it is not there.
const torch::Tensor& saved_value(
    const std::string& owner,
    const StateDict& state,
    const std::string& name);

}  // namespace tern
