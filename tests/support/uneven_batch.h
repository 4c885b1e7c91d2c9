#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/distributed/process_group.h"

namespace tern::testing_support {

/// Rank 0 has one sample, rank 1 has two, and so on.
struct UnevenBatch {
  UnevenBatch(const ProcessGroup& group, std::vector<int64_t> shape)
      : begin(group.rank() * (group.rank() + 1) / 2), size(group.rank() + 1) {
    shape[0] = group.world_size() * (group.world_size() + 1) / 2;
    torch::manual_seed(3);
    inputs = 3 * torch::randn(shape) + 10;
    weights = torch::randn(shape);
  }
  torch::Tensor mine(const torch::Tensor& of_all) const {
    return of_all.narrow(0, begin, size);
  }

  int64_t begin, size;
  torch::Tensor inputs,
      weights;  // of all ranks; `weights` are the loss weights
};

}  // namespace tern::testing_support
