#include "tern/kernels/fma_loop.h"

#include <vector>

#include "tern/tests/kernels/cpu_kernel.h"

namespace tern::fma_loop_test {
namespace {

using FmaLoops = test::CpuKernel;

TERN_CPU_LOOP void multiply_and_add(const float* a, const float* b, Floats& c) {
  for (int i = 0; i < kLanes; ++i) c[i] += a[i] * b[i];
}

// (1 + 2^-12)^2 - (1 + 2^-11) is 2^-24, and 0 if the product is rounded first.
TEST_F(FmaLoops, RoundOnceIfTheInstructionSetHasFma) {
#ifndef __x86_64__
  GTEST_SKIP() << "instruction sets are chosen on x86 only";
#endif
  const std::vector<float> factors(kLanes, 1 + 0x1p-12F);
  for (const CpuIsa isa : test::kCpuIsas) {
    set_cpu_isa(isa);
    Floats sum;
    fill_floats(-1 - 0x1p-11F, sum);
    on_fma_isa<multiply_and_add>(factors.data(), factors.data(), sum);
    for (int i = 0; i < kLanes; ++i) {
      EXPECT_EQ(sum[i], has_fma() ? 0x1p-24F : 0.0F);
    }
  }
}

TEST_F(FmaLoops, BaselineHasNoFma) {
  set_cpu_isa(CpuIsa::baseline);
  EXPECT_FALSE(has_fma());
}

}  // namespace
}  // namespace tern::fma_loop_test
