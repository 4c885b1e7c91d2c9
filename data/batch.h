#pragma once

#include <vector>

#include <torch/types.h>

namespace tern {

using Tensors = std::vector<torch::Tensor>;

/// One batch of samples.
struct Batch {
  /// inputs[0]: [N, ...]. Images leave the loader as [N, H, W, C] kByte or as
  /// [N, C, H, W] kFloat.
  Tensors inputs;
  Tensors targets;

  /// N, the number of samples; 0 for a batch without inputs.
  int64_t size() const;

  /// Returns the batch on `device`. With `non_blocking`, a copy from pinned
  /// memory to a GPU is asynchronous.
  Batch to(torch::Device device, bool non_blocking = true) const;
};

}  // namespace tern
