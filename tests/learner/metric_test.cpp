#include "tern/learner/metric.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/metrics/image_quality.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/metrics/multi_label.h"
#include "tern/learner/metrics/ranking.h"
#include "tern/learner/metrics/regression.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"

namespace tern::metric_test {
namespace {

double value(const Metric& metric) {
  return metric.compute().item<double>();
}

torch::Tensor largest_error(
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  return (pred - target).abs().amax(1);
}

TEST(Metric, IsTheMeanOfAFunctionOverAllSamples) {
  Metric metric("largest_error", largest_error, /*higher_is_better=*/false);
  EXPECT_EQ(metric.name(), "largest_error");
  EXPECT_FALSE(metric.higher_is_better());
  EXPECT_TRUE(std::isnan(value(metric)));
  metric.update({torch::ones({3, 2})}, {torch::zeros({3, 2})});
  metric.update({torch::full({1, 2}, 5.f)}, {torch::zeros({1, 2})});
  EXPECT_EQ(value(metric), (3 * 1 + 5) / 4.);
  metric.reset();
  metric.update({torch::ones({1, 2})}, {torch::zeros({1, 2})});
  EXPECT_EQ(value(metric), 1);
}

TEST(Metric, WeightsABatchsMeanByItsSamples) {
  Metric metric("mean", [](const auto& pred, const auto&) {
    return pred.mean();
  });
  EXPECT_TRUE(metric.higher_is_better());
  metric.update({torch::ones({3})}, {torch::zeros({3})});
  metric.update({torch::full({1}, 5.f)}, {torch::zeros({1})});
  EXPECT_EQ(value(metric), 2);
}

TEST(ReadNumbers, AcceptsEveryDtypeAndShapeWithOneElement) {
  EXPECT_TRUE(read_numbers({}).empty());
  EXPECT_EQ(
      read_numbers(
          {torch::tensor(1.5),
           torch::full({1, 1}, 2, torch::kLong),
           torch::tensor(3.5).requires_grad_()}),
      std::vector<double>({1.5, 2, 3.5}));
}

TEST(Metric, KeepsNoGraph) {
  Metric metric("mean", [](const auto& pred, const auto&) {
    return pred.mean();
  });
  metric.update({torch::ones({3}).requires_grad_()}, {torch::zeros({3})});
  EXPECT_FALSE(metric.compute().requires_grad());
}

TEST(Metric, RejectsInvalidUse) {
  using Error = c10::ValueError;
  Metric metric = accuracy();
  expect_error<Error>(
      [&] {
        metric.update({torch::ones({2, 2})}, {});
      },
      {"[accuracy]", "1 outputs and 0 targets"});
  Metric odd("odd", [](const auto&, const auto&) { return torch::ones({7}); });
  expect_error<Error>(
      [&] { odd.update({torch::ones({3})}, {torch::ones({3})}); },
      {"[odd]", "[7] for 3 samples"});
  expect_error<Error>([] { Metric("", largest_error); }, {"name"});
  expect_error<Error>([] { Metric(std::shared_ptr<MetricImpl>()); }, {"null"});
}

TEST(Metric, DoesNotSynchronizeWithTheDeviceBeforeValuesAreRead) {
  std::vector<Metric> of_classes = {
      accuracy(),
      error_rate(),
      top_k_accuracy(2),
      precision(),
      recall(),
      f1(),
      dice(),
      jaccard(),
      cohen_kappa(),
      matthews_corrcoef()};
  std::vector<Metric> of_values =
      {mse(), mae(), rmse(), r2_score(), accuracy_multi(), f1_multi()};
  std::vector<Metric> of_images = {psnr(), ssim()};
  std::vector<Metric> of_ranks = {roc_auc(), average_precision()};
  test::HostReads reads;
  for (int batch = 0; batch < 2; ++batch) {
    for (Metric& metric : of_classes) {
      metric.update({torch::randn({8, 3})}, {torch::arange(8) % 3});
    }
    for (Metric& metric : of_values) {
      metric.update({torch::randn({8, 3})}, {torch::ones({8, 3})});
    }
    for (Metric& metric : of_images) {
      metric.update(
          {torch::rand({2, 3, 12, 12})},
          {torch::rand({2, 3, 12, 12})});
    }
    for (Metric& metric : of_ranks) {  // only their compute synchronizes
      metric.update({torch::randn({8, 3})}, {torch::arange(8) % 4});
    }
  }
  for (const auto* metrics : {&of_classes, &of_values, &of_images}) {
    for (const Metric& metric : *metrics) metric.compute();
  }
  EXPECT_EQ(reads.count(), 0);
}

TEST(Metric, SyncSumsCountsOnTheDevice) {
  Metric metric = accuracy();
  metric.update({torch::eye(2)}, {torch::arange(2)});
  // A second process had one hit in two samples. Before the sums, sync also
  // exchanges a table (which ranks have sums, on which device) and a scalar
  // (the number of batches with a NaN).
  metric.sync([](const torch::Tensor& sums) {
    if (sums.dim() != 1) return;
    sums.add_(torch::tensor({1., 2.}, torch::kDouble));
  });
  EXPECT_EQ(metric.compute().item<double>(), 0.75);
}

TEST(AllReduce, GivesARankWithoutABatchZerosOfTheSameShape) {
  const torch::Tensor own =
      torch::ones({1, 2, 1, 3, 1, 1, 1, 1, 1, 2}, torch::kInt);
  torch::Tensor sent;
  const AllReduce first(
      [&](const torch::Tensor& table) { sent = table.clone(); },
      0,
      2);
  EXPECT_TRUE(first.or_zeros(own).is_same(own));
  const AllReduce second(
      [&](const torch::Tensor& table) { table.add_(sent); },
      1,
      2);
  EXPECT_TRUE(second.or_zeros({}).equal(torch::zeros_like(own)));
  sent.zero_();  // no rank has a batch
  EXPECT_FALSE(second.or_zeros({}).defined());
}

TEST(Metric, FreshCopyStartsEmptyAndLeavesTheOriginalUnchanged) {
  Metric metric = accuracy();
  metric.update({torch::eye(2)}, {torch::arange(2)});
  const Metric other = metric.fresh_copy();
  EXPECT_TRUE(std::isnan(other.compute().item<double>()));
  EXPECT_EQ(metric.compute().item<double>(), 1);
  EXPECT_EQ(other.name(), "accuracy");
}

}  // namespace
}  // namespace tern::metric_test
