#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <torch/types.h>

#include "tern/data/data_bunch.h"

namespace tern::testing_support {

/// Loads the samples in order for training and validation, with a short last
/// batch.
inline DataBunch
in_order(torch::Tensor inputs, torch::Tensor targets, int64_t batch_size) {
  const auto set = std::make_shared<TensorDataset>(
      Tensors{std::move(inputs)},
      Tensors{std::move(targets)});
  DataBunch data =
      DataBunch::create(set, set, {.batch_size = batch_size, .workers = 0});
  data.train = std::make_shared<DataLoader>(
      set,
      DataLoaderOptions{
          .batch_size = batch_size,
          .training = true,
          .workers = 0});
  data.device = torch::kCPU;
  return data;
}

}  // namespace tern::testing_support
