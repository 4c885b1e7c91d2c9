#pragma once

#include <cmath>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/model.h"

namespace tern::testing_support {

/// Changes weights and statistics from their initial values, which would hide
/// omissions.
inline void stir(Model model) {
  const torch::NoGradGuard no_grad;
  for (const ModelTensor& t : model.parameters()) {
    const bool is_constant =
        t.tensor.numel() == 1 || t.tensor.std().item<float>() == 0;
    if (t.tensor.dim() == 1 || is_constant) {
      t.tensor.add_(torch::randn_like(t.tensor), 0.1);
    } else if (t.tensor.dim() == 2) {
      t.tensor.normal_(0, 1 / std::sqrt(static_cast<double>(t.tensor.size(1))));
    }
  }
  for (const ModelTensor& t : model.buffers()) {
    if (t.name.ends_with("running_mean")) t.tensor.normal_(0, 0.1);
    if (t.name.ends_with("running_var")) t.tensor.uniform_(0.5, 1.5);
  }
}

}  // namespace tern::testing_support
