#include "tern/kernels/fma_loop.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/pointwise_conv.h"
#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::fma_loop_test {
namespace {

using FmaLoop = test::CpuKernel;

// (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24, and 0 if the product is rounded first.
TEST_F(FmaLoop, RoundsOnceIfTheInstructionSetHasFma) {
  const torch::Tensor factor = torch::full({1, 1, 1, 1}, 1 + 0x1p-12);
  const torch::Tensor bias = torch::full({1}, -1 - 0x1p-11);
  set_cpu_isa(best_cpu_isa());
  if (!has_fma()) GTEST_SKIP() << "this processor lacks FMA";
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    if (!has_fma()) continue;
    EXPECT_EQ(
        pointwise_conv2d(
            factor,
            pointwise_weight(factor, bias),
            /*outputs=*/1,
            {1, 1},
            {},
            {},
            {})
            .item<float>(),
        0x1p-24F);
  }
}

TEST_F(FmaLoop, TheBaselineHasNoFma) {
  set_cpu_isa(CpuIsa::baseline);
  EXPECT_FALSE(has_fma());
}

}  // namespace
}  // namespace tern::fma_loop_test
