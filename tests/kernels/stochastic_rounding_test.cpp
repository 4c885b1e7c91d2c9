#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/kernels/optim/fused_step.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"

namespace tern::test::stochastic_rounding_test {
namespace {

/// A bfloat16 parameter trained by SGD with a learning rate of 1.
struct Parameter {
  torch::Tensor value;
  torch::Tensor steps = torch::zeros({});
  uint32_t key = 0;

  void step(const torch::Tensor& grad) {
    const std::vector<torch::Tensor> params = {value}, grads = {grad},
                                     counts = {steps};
    const OptimizerTensors tensors = {
        .params = params,
        .grads = grads,
        .weights = {},
        .steps = counts,
        .rounding_keys = key};
    fused_sgd_(tensors, {}, {.lr = 1});
  }
};

Parameter ones(int64_t size, uint32_t key = 0) {
  return {.value = torch::ones({size}, torch::kBFloat16), .key = key};
}

TEST(StochasticRounding, KeepsUpdatesBelowOneUnitOnAverage) {
  auto p = ones(40000);
  const auto grad = torch::full({40000}, 1e-4);  // 2^-8 is the unit below 1
  for (int step = 0; step < 50; ++step) p.step(grad);
  // Four standard deviations of 2 million roundings.
  EXPECT_NEAR(p.value.to(torch::kDouble).mean().item<double>(), 0.995, 8e-5);
}

TEST(StochasticRounding, RoundsToOneOfTheTwoNeighbors) {
  auto p = ones(10000);
  p.step(torch::full({10000}, 1e-3));
  const auto values = std::get<0>(at::_unique(p.value.to(torch::kFloat)));
  EXPECT_TRUE(bit_equal(values, torch::tensor({1 - 0x1p-8f, 1.f})));
}

TEST(StochasticRounding, KeepsValuesThatBFloat16CanRepresent) {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto values = torch::tensor({0.f, -1.5f, 3e38f, infinity, -infinity})
                          .to(torch::kBFloat16);
  Parameter p = {.value = values.clone()};
  p.step(torch::zeros({5}));
  EXPECT_TRUE(bit_equal(p.value, values));
  p.step(torch::full({5}, NAN));
  EXPECT_TRUE(p.value.isnan().all().item<bool>());
}

TEST(StochasticRounding, DependsOnlyOnParameterStepAndElement) {
  const auto grad = torch::full({5000}, 1e-3);
  auto first = ones(5000), again = ones(5000), other = ones(5000, 1);
  first.step(grad);
  again.step(grad);
  other.step(grad);
  EXPECT_TRUE(bit_equal(first.value, again.value));
  EXPECT_FALSE(first.value.equal(other.value));
  auto later = ones(5000);
  later.steps.fill_(1);
  later.step(grad);
  EXPECT_FALSE(first.value.equal(later.value));
}

TEST(StochasticRounding, RequiresAKey) {
  const std::vector<torch::Tensor> params = {torch::ones(
                                       {2},
                                       torch::kBFloat16)},
                                   grads = {torch::ones({2})},
                                   steps = {torch::zeros({})};
  expect_error<c10::ValueError>(
      [&] {
        fused_sgd_({params, grads, {}, steps}, {}, {});
      },
      {"params[0] is [2] kBFloat16", "rounding key"});
}

}  // namespace
}  // namespace tern::test::stochastic_rounding_test
