#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/batch.h"
#include "tern/tests/support/gpu_test.h"

namespace tern::copy_stream_cuda_test {
namespace {

class CopyStreamCudaTest : public GpuTest {};

TEST_F(CopyStreamCudaTest, ComputationsSeeTheWholeBatch) {
  const int64_t size = 1 << 22;
  const auto pinned = torch::TensorOptions().pinned_memory(true);
  CopyStream stream;
  auto sum = torch::zeros({size}, torch::kCUDA);
  constexpr int kBatches = 50;
  for (int i = 1; i <= kBatches; ++i) {
    const Batch host{
        {torch::full({size}, static_cast<double>(i), pinned)},
        {torch::full({2}, i, torch::kLong)}};
    // Each batch is copied while the GPU works on earlier ones, and their
    // memory is reused.
    const Batch moved = stream.to(torch::kCUDA, host);
    ASSERT_TRUE(moved.inputs[0].is_cuda());
    ASSERT_TRUE(moved.targets[0].is_cuda());
    for (int round = 0; round < 8; ++round) {
      sum += moved.inputs[0] / 8;
    }
  }
  const double expected = kBatches * (kBatches + 1) / 2.0;
  EXPECT_TRUE(sum.sub(expected).abs().lt(0.01).all().item<bool>());
}

TEST_F(CopyStreamCudaTest, DoesNotCopyABatchThatIsOnTheDevice) {
  const Batch there{{torch::ones({3}, torch::kCUDA)}, {}};
  EXPECT_TRUE(
      CopyStream().to(torch::kCUDA, there).inputs[0].is_same(there.inputs[0]));
}

}  // namespace
}  // namespace tern::copy_stream_cuda_test
