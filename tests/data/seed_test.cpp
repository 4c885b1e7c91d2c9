#include <cstdlib>

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/support/random.h"

namespace tern::seed_test {
namespace {

TEST(SeedEverything, RepeatsRandomNumbers) {
  seed_everything(5);
  const torch::Tensor a = torch::randn({8});
  const int c = std::rand();
  seed_everything(5);
  EXPECT_TRUE(torch::equal(torch::randn({8}), a));
  EXPECT_EQ(std::rand(), c);
  seed_everything(6);
  EXPECT_FALSE(torch::equal(torch::randn({8}), a));
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

TEST(SeedEverything, EnablesDeterministicAlgorithms) {
  seed_everything(5, /*deterministic=*/true);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_TRUE(at::globalContext().deterministicCuDNN());
  EXPECT_FALSE(at::globalContext().benchmarkCuDNN());
  EXPECT_STREQ(std::getenv("CUBLAS_WORKSPACE_CONFIG"), ":4096:8");
  set_deterministic(false);
  EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

}  // namespace
}  // namespace tern::seed_test
