#include "tern/kernels/cpu_isa.h"

#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/images/normalize_images.h"
#include "tern/kernels/optim/fused_step.h"
#include "tern/kernels/optim/unscale_and_check.h"
#include "tern/tests/kernels/step_lists.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::cpu_isa_test {
namespace {

/// Skips instruction sets that this processor lacks.
class CpuIsaTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    set_cpu_isa(GetParam());
    if (cpu_isa() != GetParam()) {
      GTEST_SKIP() << "this processor lacks it";
    }
  }
  void TearDown() override { set_cpu_isa(best_cpu_isa()); }

  /// Results of `f` under the tested instruction set and under the baseline.
  template <class F>
  void expect_same_as_baseline(const F& f) {
    const torch::Tensor actual = f();
    set_cpu_isa(CpuIsa::baseline);
    EXPECT_TRUE(bit_equal(actual, f()));
    set_cpu_isa(GetParam());
  }
};

std::string name_of(CpuIsa isa) {
  return isa == CpuIsa::avx512 ? "avx512"
         : isa == CpuIsa::avx2 ? "avx2"
         : isa == CpuIsa::neon ? "neon"
                               : "baseline";
}

INSTANTIATE_TEST_SUITE_P(
    All,
    CpuIsaTest,
    testing::Values(
        CpuIsa::baseline,
        CpuIsa::neon,
        CpuIsa::avx2,
        CpuIsa::avx512),
    [](const auto& info) { return name_of(info.param); });

/// All 65536 values of a 16-bit dtype.
torch::Tensor all_values(torch::ScalarType type) {
  return torch::arange(65536).to(torch::kShort).view(type);
}

TEST_P(CpuIsaTest, ConvertsEveryHalfToItsFloatAndBack) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const auto values = all_values(type);
    auto masters = torch::zeros({65536}), weights = torch::zeros({65536}, type);
    // 0 - 1 * grad: the master is the negated gradient.
    fused_sgd_({masters, values, weights, torch::zeros({})}, {}, {.lr = 1});
    const auto expected = -values.to(torch::kFloat);
    EXPECT_TRUE(all_close(masters, expected, {0, 0}));
    EXPECT_TRUE(all_close(weights, -values, {0, 0}));
  }
}

TEST_P(CpuIsaTest, RoundsFloatsToHalvesAsATenDoes) {
  // Around every half: the midpoints between neighbors and the adjacent floats.
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const auto values = all_values(type).to(torch::kFloat);
    const auto next = torch::roll(values, -1);
    const auto middle = (values.to(torch::kDouble) + next.to(torch::kDouble))
                            .div(2)
                            .to(torch::kFloat);
    const auto up =
        torch::nextafter(middle, torch::full_like(middle, INFINITY));
    const auto down =
        torch::nextafter(middle, torch::full_like(middle, -INFINITY));
    auto masters = torch::cat({values, middle, up, down});
    auto weights = torch::zeros({masters.numel()}, type);
    fused_sgd_(
        {masters, torch::zeros_like(masters), weights, torch::zeros({})},
        {},
        {.lr = 0});
    EXPECT_TRUE(all_close(weights, masters.to(type), {0, 0}));
  }
}

TEST_P(CpuIsaTest, KeepsNaNsNaN) {
  // Payloads in the low bits, which a truncation would turn into infinity.
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const auto bits = torch::tensor(
        {0x7F800001,
         0x7FFFFFFF,
         0x7FC00000,
         static_cast<int>(0xFF800001),
         static_cast<int>(0xFFFFFFFF)},
        torch::kInt);
    const auto masters = bits.repeat({13}).view(torch::kFloat);
    auto weights = torch::zeros({masters.numel()}, type);
    fused_sgd_(
        {masters, torch::zeros_like(masters), weights, torch::zeros({})},
        {},
        {.lr = 0});
    EXPECT_TRUE(weights.isnan().all().item<bool>());
  }
}

TEST_P(CpuIsaTest, OptimizersEqualTheBaselineBitForBit) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const bool is_half = type == torch::kHalf;
    const auto lists = make_step_lists(
        large_shapes(),
        {.grad_type = type,
         .weight_type = is_half ? type : torch::kFloat,
         .looks_ahead = true,
         .has_8bit_moments = is_half,
         .param_type = is_half ? torch::kFloat : type});
    const GradState state{torch::tensor(3.0f), torch::zeros({})};
    auto run = [&] {
      auto copy = lists.clone();
      fused_sgd_(
          copy.tensors(),
          copy.momentum_buffers,
          {.momentum = 0.9,
           .weight_decay = 0.1,
           .nesterov = true,
           .trust_coeff = 0.02,
           .lookahead = {.k = 4}},
          state);
      fused_adam_(
          copy.tensors(),
          copy.exp_avgs,
          copy.exp_avg_sqs,
          copy.max_exp_avg_sqs,
          {.weight_decay = 0.1, .amsgrad = true, .lookahead = {.k = 5}},
          state);
      fused_adam_(
          copy.tensors(),
          copy.exp_avgs,
          copy.exp_avg_sqs,
          {},
          {.weight_decay = 0.1, .trust_ratio = true, .lookahead = {.k = 7}},
          state);
      return copy;
    };
    auto actual = run();
    set_cpu_isa(CpuIsa::baseline);
    auto expected = run();
    set_cpu_isa(GetParam());
    EXPECT_TRUE(lists_bit_equal(actual, expected));
  }
}

TEST_P(CpuIsaTest, NormalizeEqualsTheBaselineBitForBit) {
  const auto images = torch::randint(0, 256, {2, 50, 51, 3}, torch::kByte);
  for (const auto type : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
    expect_same_as_baseline([&] {
      return normalize_images(
          images,
          std::vector<double>{0.4, 0.5, 0.6},
          std::vector<double>{0.2, 0.3, 0.25},
          type);
    });
  }
}

TEST_P(CpuIsaTest, UnscaleEqualsTheBaselineBitForBit) {
  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16}) {
    const auto grad = torch::randn({70003}).to(type);
    expect_same_as_baseline([&] {
      auto copy = grad.clone();
      unscale_and_check_({copy}, torch::tensor(0.3f), torch::zeros({}));
      return copy;
    });
  }
}

TEST(CpuIsa, SetNeverExceedsTheProcessor) {
  set_cpu_isa(CpuIsa::avx512);
  EXPECT_EQ(cpu_isa(), best_cpu_isa());
}

}  // namespace
}  // namespace tern::test::cpu_isa_test
