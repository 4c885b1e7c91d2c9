#include "tern/kernels/global_average_pool.h"

#include <limits>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tern/kernels/cpu_isa.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::global_average_pool_test {
namespace {

using Numbers = std::vector<int64_t>;

using GlobalAveragePool = test::CpuKernel;

TEST_F(GlobalAveragePool, EqualsTheMeanForAnySizeLayoutAndInstructionSet) {
  for (const Numbers& sizes : std::vector<Numbers>{
           {1, 1, 1, 1},
           {1, 32, 112, 112},
           {2, 2048, 7, 7},
           {3, 17, 8, 8},
           {1, 100, 5, 13},
           {4, 200, 1, 129},
           {0, 16, 3, 3},
           {2, 0, 3, 3}}) {
    const torch::Tensor x = torch::rand(sizes);
    const torch::Tensor expected = x.to(torch::kDouble).mean({2, 3}, true);
    for (const torch::Tensor& images :
         {x, x.contiguous(at::MemoryFormat::ChannelsLast)}) {
      for (const CpuIsa isa : test::kCpuIsas) {
        set_cpu_isa(isa);
        const torch::Tensor means = global_average_pool(images);
        EXPECT_EQ(means.sizes(), expected.sizes());
        EXPECT_TRUE(
            torch::allclose(means.to(torch::kDouble), expected, 1e-6, 0))
            << sizes;
      }
    }
  }
}

TEST_F(GlobalAveragePool, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const Numbers& sizes : std::vector<Numbers>{
           {1, 40, 56, 56},
           {1, 2048, 7, 7},
           {5, 72, 20, 20}}) {
    const torch::Tensor x =
        torch::randn(sizes).contiguous(at::MemoryFormat::ChannelsLast);
    at::set_num_threads(1);
    const torch::Tensor one = global_average_pool(x);
    for (const int threads : {2, 3, 16}) {
      at::set_num_threads(threads);
      EXPECT_TRUE(global_average_pool(x).equal(one)) << sizes;
    }
  }
}

TEST_F(GlobalAveragePool, KeepsNaNInItsChannel) {
  torch::Tensor x = torch::rand({2, 20, 9, 9});
  x[1][18][8][8] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(global_average_pool(x).isnan().equal(
      x.mean({2, 3}, /*keepdim=*/true).isnan()));
}

TEST_F(GlobalAveragePool, RejectsInputsThatItWouldReadOutOfBounds) {
  EXPECT_THROW(global_average_pool(torch::rand({2, 3, 4})), c10::ValueError);
  EXPECT_THROW(
      global_average_pool(torch::rand({2, 3, 4, 4}, torch::kDouble)),
      c10::ValueError);
  EXPECT_THROW(global_average_pool(torch::rand({2, 3, 0, 4})), c10::ValueError);
}

}  // namespace
}  // namespace tern::global_average_pool_test
