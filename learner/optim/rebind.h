#pragma once

#include <vector>

#include <torch/optim/optimizer.h>
#include <torch/types.h>

namespace tern::optim {

/// Lets `optimizer` own `to[i]` where it owned `from[i]`, with its moments and
/// step count: how a parameter becomes its fp32 master, and back. Lists may
/// overlap, so a permutation is allowed. State stays on its device.
///
/// \param from  Parameters of the optimizer, each once.
/// \param to    As many, of the same shapes.
/// \throws c10::ValueError if a list disagrees; nothing has changed then.
void rebind_parameters(
    torch::optim::Optimizer& optimizer,
    const std::vector<torch::Tensor>& from,
    const std::vector<torch::Tensor>& to);

}  // namespace tern::optim
