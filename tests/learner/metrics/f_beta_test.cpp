#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/metrics/metrics.h"
#include "tern/tests/support/expect_error.h"

namespace tern::f_beta_test {
namespace {

torch::Tensor scores(const std::vector<int64_t>& classes, int64_t count) {
  return torch::one_hot(torch::tensor(classes), count).to(torch::kFloat);
}

double by_batches(
    Metric metric,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  metric.update({pred.slice(0, 0, 3)}, {target.slice(0, 0, 3)});
  metric.update({pred.slice(0, 3)}, {target.slice(0, 3)});
  return metric.compute().item<double>();
}

// For class 1: 2 hits, 3 predictions, 4 targets.
class BinaryFBeta : public testing::Test {
 protected:
  torch::Tensor pred = scores({1, 1, 0, 0, 1, 0, 0}, 2);
  torch::Tensor target = torch::tensor({1, 1, 1, 1, 0, 0, 0});
};

TEST_F(BinaryFBeta, RefersToClassOne) {
  EXPECT_DOUBLE_EQ(by_batches(precision(), pred, target), 2 / 3.);
  EXPECT_DOUBLE_EQ(by_batches(recall(), pred, target), 2 / 4.);
  EXPECT_DOUBLE_EQ(by_batches(f1(), pred, target), 4 / 7.);
  const double p = 2 / 3., r = 2 / 4.;
  EXPECT_DOUBLE_EQ(
      by_batches(f_beta(2), pred, target),
      5 * p * r / (4 * p + r));
  EXPECT_DOUBLE_EQ(by_batches(dice(), pred, target), 4 / 7.);
  EXPECT_EQ(f_beta(.5).name(), "f0.5");
  EXPECT_EQ(f1().name(), "f1");
}

TEST_F(BinaryFBeta, SupportsTheLogitOfABinaryClassifier) {
  const auto logits = pred.select(1, 1) - .5;
  EXPECT_DOUBLE_EQ(by_batches(precision(), logits, target), 2 / 3.);
  EXPECT_DOUBLE_EQ(
      by_batches(precision(), logits.unsqueeze(1), target),
      2 / 3.);
  EXPECT_DOUBLE_EQ(
      by_batches(
          dice(),
          logits.reshape({7, 1, 1, 1}).expand({7, 1, 2, 2}),
          target.reshape({7, 1, 1}).expand({7, 2, 2})),
      4 / 7.);
}

TEST_F(BinaryFBeta, MatchesScikitLearnWhenAveraged) {
  // sklearn.metrics.precision_score(target, pred, average=...)
  EXPECT_DOUBLE_EQ(
      by_batches(precision(Average::macro), pred, target),
      (2 / 4. + 2 / 3.) / 2);
  EXPECT_DOUBLE_EQ(by_batches(precision(Average::micro), pred, target), 4 / 7.);
  EXPECT_DOUBLE_EQ(
      by_batches(precision(Average::weighted), pred, target),
      (3 * 2 / 4. + 4 * 2 / 3.) / 7);
}

TEST(FBeta, AveragesOverClassesAndCountsAnAbsentOneAsZero) {
  const auto pred = scores({0, 1, 1, 0}, 4);
  const auto target = torch::tensor({0, 1, 2, 2});
  EXPECT_DOUBLE_EQ(
      by_batches(precision(), pred, target),
      (1 / 2. + 1 / 2. + 0 + 0) / 4);
  EXPECT_DOUBLE_EQ(by_batches(recall(), pred, target), 2 / 4.);
  EXPECT_DOUBLE_EQ(by_batches(dice(), pred, target), (2 / 3. + 2 / 3. + 0) / 3);
}

TEST(FBeta, IgnoresTargetsOutsideTheClasses) {
  const auto pred = scores({1, 1, 0, 1}, 2);
  EXPECT_DOUBLE_EQ(
      by_batches(precision(), pred, torch::tensor({1, 255, -100, 0})),
      .5);
}

TEST(Dice, IsOneIfNothingIsPresentAndNothingIsPredicted) {
  EXPECT_EQ(
      by_batches(
          dice(),
          scores({0, 0, 0, 0}, 2),
          torch::zeros(4, torch::kLong)),
      1);
  EXPECT_EQ(
      by_batches(
          dice(),
          scores({0, 1, 2, 0}, 3),
          torch::full({4}, -100, torch::kLong)),
      1);
}

TEST(FBeta, RejectsInvalidUse) {
  using Error = c10::ValueError;
  Metric metric = precision(Average::binary);
  metric.update({scores({0, 1, 2}, 3)}, {torch::arange(3)});
  expect_error<Error>(
      [&] { metric.compute(); },
      {"[precision]", "3 classes", "macro"});
  expect_error<Error>(
      [&] {
        metric.update({scores({0, 1}, 2)}, {torch::arange(2)});
      },
      {"2 classes", "had 3"});
  expect_error<Error>([] { f_beta(0); }, {"beta is 0"});
}

}  // namespace
}  // namespace tern::f_beta_test
