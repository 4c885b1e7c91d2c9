#pragma once

#include <cstddef>

#include <torch/types.h>

#include "tern/data/batch.h"

namespace tern::bench {

/// A loss that depends on each output of the matting networks, in the same few
/// lines as in Python; `src` is [N, 3, H, W].
inline torch::Tensor matting_step_loss(
    const Tensors& outputs,
    const torch::Tensor& src) {
  torch::Tensor loss = torch::l1_loss(outputs[0], src.narrow(1, 0, 1)) +
                       torch::l1_loss(outputs[1], src);
  for (size_t i = 2; i < outputs.size(); ++i) {
    if (outputs[i].requires_grad()) loss = loss + outputs[i].square().mean();
  }
  return loss;
}

}  // namespace tern::bench
