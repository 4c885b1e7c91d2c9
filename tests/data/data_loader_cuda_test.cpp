#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/data_loader.h"
#include "tern/kernels/load_cuda.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::data_loader_cuda_test {
namespace {

class DataLoaderCudaTest : public GpuTest {};

bool pins_its_batches(const DataLoader& loader) {
  auto pass = loader.epoch(0);
  const auto batch = pass.next();
  return batch->inputs[0].is_pinned();
}

TEST_F(DataLoaderCudaTest, PinsItsBatchesOnceCudaIsInUse) {
  const auto data = std::make_shared<TensorDataset>(
      Tensors{torch::rand({64, 2})},
      Tensors{torch::zeros({64}, torch::kLong)});
  const DataLoader loader(data, {.batch_size = 8, .workers = 1});
  const DataLoader never(
      data,
      {.batch_size = 8, .workers = 1, .pin_memory = false});
  // CUDA may already be in use if this process runs other tests too.
  EXPECT_EQ(pins_its_batches(loader), is_cuda_in_use());
  const auto on_gpu = torch::ones({1}, torch::kCUDA);
  EXPECT_TRUE(is_cuda_in_use());
  EXPECT_TRUE(pins_its_batches(loader));
  EXPECT_FALSE(pins_its_batches(never));
}

}  // namespace
}  // namespace tern::data_loader_cuda_test
