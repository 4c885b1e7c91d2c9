#pragma once

// Images small enough for matting networks in a test.

#include <memory>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/data_bunch.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/tiny.h"

namespace tern::testing_support {

/// Returns a batch of RGB noise in 0..1.
inline torch::Tensor noise(int64_t n, int64_t h, int64_t w, uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed);
  return torch::rand({n, 3, h, w}, generator);
}

/// Returns a Learner with the target pha = 1 for four images of `side` pixels.
/// An epoch is one batch.
inline Learner matting_learner(Model model, int64_t side) {
  const auto dataset = std::make_shared<TensorDataset>(
      Tensors{noise(4, side, side, 1), noise(4, side, side, 2)},
      Tensors{torch::ones({4, 1, side, side})});
  DataBunch data =
      DataBunch::create(dataset, nullptr, {.batch_size = 4, .workers = 0});
  data.device = torch::kCPU;
  const auto loss = [](const Tensors& outputs, const Tensors& targets) {
    return (outputs[0] - targets[0]).abs().mean() + outputs[1].mean();
  };
  return Learner(
      data,
      std::move(model),
      quiet({.loss = Loss(loss), .weight_decay = 0}));
}

}  // namespace tern::testing_support
