#include "tern/learner/metrics/regression.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/metrics/metrics.h"
#include "tern/tests/support/expect_error.h"

namespace tern::regression_test {
namespace {

double by_batches(
    Metric metric,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  metric.update({pred.slice(0, 0, 7)}, {target.slice(0, 0, 7)});
  metric.update({pred.slice(0, 7)}, {target.slice(0, 7)});
  return metric.compute().item<double>();
}

TEST(Regression, IsExactOverUnevenBatches) {
  torch::manual_seed(2);
  const auto pred = torch::randn({10, 3});
  const auto target = torch::randn({10, 3});
  const auto error = pred.to(torch::kDouble) - target.to(torch::kDouble);
  const double squared = error.square().mean().item<double>();
  EXPECT_DOUBLE_EQ(by_batches(mse(), pred, target), squared);
  EXPECT_DOUBLE_EQ(by_batches(rmse(), pred, target), std::sqrt(squared));
  EXPECT_DOUBLE_EQ(
      by_batches(mae(), pred, target),
      error.abs().mean().item<double>());
  EXPECT_FALSE(rmse().higher_is_better());
}

TEST(Regression, ComparesElementsAndNeverBroadcasts) {
  const auto pred = torch::arange(10.f).unsqueeze(1);  // [N, 1] against [N]
  EXPECT_EQ(by_batches(mse(), pred, torch::arange(10.f)), 0);
  EXPECT_EQ(by_batches(mse(), pred.to(torch::kHalf), torch::arange(10)), 0);
  Metric metric = mae();
  expect_error<c10::ValueError>(
      [&] { metric.update({pred}, {torch::ones({1})}); },
      {"[mae]", "[10, 1]", "[1]"});
}

}  // namespace
}  // namespace tern::regression_test
