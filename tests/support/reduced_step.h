#pragma once

#include <limits>

#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/distributed/gradient_reducer.h"

namespace tern::testing_support {

/// A scaled step whose gradients are averaged over the ranks.
/// \param overflows  Adds an infinity to this rank's part of the batch.
inline void reduced_step(
    GradientReducer& reducer,
    torch::nn::Sequential& net,
    torch::optim::Optimizer& optimizer,
    GradScaler& scaler,
    torch::Tensor x,
    bool overflows) {
  if (overflows) x[0][0] = std::numeric_limits<float>::infinity();
  reducer.before_forward();
  const auto out = net->forward(x);
  reducer.before_backward({out});
  scaler.scale(out.square().mean()).backward();
  scaler.step(optimizer);
  scaler.update();
  optimizer.zero_grad();
}

}  // namespace tern::testing_support
