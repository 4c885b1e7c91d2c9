#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/metrics/metrics.h"
#include "tern/learner/metrics/multi_label.h"
#include "tern/learner/metrics/ranking.h"
#include "tern/tests/support/expect_error.h"

namespace tern::accuracy_test {
namespace {

// Returns the metric of ten samples in batches of 4, 4 and 2.
double by_batches(
    Metric metric,
    const torch::Tensor& pred,
    const torch::Tensor& target) {
  for (const auto& [from, to] : {std::pair{0, 4}, {4, 8}, {8, 10}}) {
    metric.update({pred.slice(0, from, to)}, {target.slice(0, from, to)});
  }
  return metric.compute().item<double>();
}

class AccuracyTest : public testing::Test {
 protected:
  AccuracyTest() { torch::manual_seed(1); }
  torch::Tensor pred = torch::randn({10, 5});
  torch::Tensor target = torch::arange(10) % 5;
};

TEST_F(AccuracyTest, IsExactOverUnevenBatches) {
  const double hits =
      (pred.argmax(1) == target).to(torch::kDouble).mean().item<double>();
  EXPECT_EQ(by_batches(accuracy(), pred, target), hits);
  EXPECT_DOUBLE_EQ(by_batches(error_rate(), pred, target), 1 - hits);
  EXPECT_EQ(accuracy().name(), "accuracy");
  EXPECT_FALSE(error_rate().higher_is_better());
}

TEST_F(AccuracyTest, SupportsTheLayoutsOfCrossEntropyAndFastai) {
  const double expected = by_batches(accuracy(), pred, target);
  EXPECT_EQ(by_batches(accuracy(), pred, target.unsqueeze(1)), expected);
  const auto image = torch::randn({10, 5, 2, 3});  // [N, C, H, W]
  const auto mask = torch::randint(5, {10, 2, 3});
  const double of_pixels =
      (image.argmax(1) == mask).to(torch::kDouble).mean().item<double>();
  EXPECT_DOUBLE_EQ(by_batches(accuracy(), image, mask), of_pixels);
  const auto last = image.permute({0, 2, 3, 1});
  EXPECT_DOUBLE_EQ(by_batches(accuracy(-1), last, mask), of_pixels);
  expect_error<c10::ValueError>(
      [&] { by_batches(accuracy(), last, mask); },
      {"[4, 2, 3, 5]", "set axis to -1"});
  expect_error<c10::ValueError>(
      [&] { by_batches(accuracy(4), pred, target); },
      {"axis is 4", "[4, 5]"});
}

// If a sequence is as long as there are classes, its shape does not show the
// axis.
TEST_F(AccuracyTest, OfASequenceUsesItsAxisWhateverTheLength) {
  for (const int64_t length : {2, 5, 7}) {
    const auto scores = torch::randn({10, length, 5});
    const auto truth = torch::randint(5, {10, length});
    const auto is_hit = (scores.argmax(-1) == truth).to(torch::kDouble);
    const auto second = scores.transpose(1, 2);
    const double hits = is_hit.mean().item<double>();
    EXPECT_DOUBLE_EQ(by_batches(accuracy(-1), scores, truth), hits);
    EXPECT_DOUBLE_EQ(by_batches(accuracy(2), scores, truth), hits);
    EXPECT_DOUBLE_EQ(by_batches(accuracy(), second, truth), hits);
    EXPECT_DOUBLE_EQ(by_batches(error_rate(-1), scores, truth), 1 - hits);
    const std::pair<Metric, Metric> pairs[] = {
        {f1(), f1(Average::automatic, -1)},
        {precision(Average::micro), precision(Average::micro, -1)},
        {recall(), recall(Average::automatic, -1)},
        {f_beta(2), f_beta(2, Average::automatic, -1)},
        {dice(), dice(-1)},
        {jaccard(), jaccard(Average::automatic, -1)},
        {cohen_kappa(), cohen_kappa(KappaWeights::none, -1)},
        {matthews_corrcoef(), matthews_corrcoef(-1)},
        {top_k_accuracy(2), top_k_accuracy(2, -1)}};
    for (const auto& [of_second, of_last] : pairs) {
      EXPECT_DOUBLE_EQ(
          by_batches(of_second, second, truth),
          by_batches(of_last, scores, truth))
          << of_last.name();
    }
  }
}

TEST_F(AccuracyTest, CountsRowsOfOneHotTargets) {
  const auto image = torch::randn({10, 5, 2, 3});
  const auto mask = torch::randint(5, {10, 2, 3});
  for (const auto type : {torch::kLong, torch::kByte, torch::kBool}) {
    const auto one_hot = torch::one_hot(target, 5).to(type);
    const auto of_pixels = torch::one_hot(mask, 5).movedim(-1, 1).to(type);
    for (const auto& make :
         {+[] { return accuracy(); },
          +[] { return f1(); },
          +[] { return dice(); },
          +[] { return top_k_accuracy(2); }}) {
      EXPECT_EQ(
          by_batches(make(), pred, one_hot),
          by_batches(make(), pred, target));
      EXPECT_EQ(
          by_batches(make(), image, of_pixels),
          by_batches(make(), image, mask));
    }
  }
  // Sequences, in both layouts.
  const auto words = torch::randn({10, 4, 5});
  const auto word = torch::randint(5, {10, 4});
  const auto hot = torch::one_hot(word, 5);
  for (const int64_t axis : {-1, 2}) {
    EXPECT_EQ(
        by_batches(accuracy(axis), words, hot),
        by_batches(accuracy(-1), words, word));
  }
  for (const auto& make : {roc_auc, average_precision}) {
    EXPECT_EQ(
        by_batches(make(1), pred, torch::one_hot(target, 5)),
        by_batches(make(1), pred, target));
    EXPECT_EQ(
        by_batches(make(-1), words, hot),
        by_batches(make(1), words.transpose(1, 2), word));
  }
  // A binary classifier's mask has no class axis, whatever its values.
  const auto binary = torch::randn({10, 6, 6});
  const auto is_in = torch::eye(6, torch::kLong).expand({10, 6, 6});
  EXPECT_EQ(
      by_batches(accuracy(), binary, is_in),
      ((binary > 0) == (is_in > 0)).to(torch::kDouble).mean().item<double>());

  auto labels = torch::one_hot(target, 5);
  labels[3] = 1;
  for (const Metric& metric : {accuracy(), f1()}) {
    expect_error<c10::ValueError>(
        [&] { by_batches(metric, pred, labels); },
        {"not exactly one of a sample's 5 numbers", "accuracy_multi()"});
  }
}

TEST_F(AccuracyTest, SupportsHalfPrecision) {
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    const auto low = pred.to(type);
    EXPECT_EQ(
        by_batches(accuracy(), low, target),
        by_batches(accuracy(), low.to(torch::kFloat), target));
    EXPECT_EQ(by_batches(top_k_accuracy(5), low, target), 1);
  }
}

TEST_F(AccuracyTest, TopKCountsTheTrueClassAmongTheMostLikely) {
  const auto best = std::get<1>(pred.topk(2, 1));
  const double hits = (best == target.unsqueeze(1))
                          .any(1)
                          .to(torch::kDouble)
                          .mean()
                          .item<double>();
  EXPECT_EQ(by_batches(top_k_accuracy(2), pred, target), hits);
  EXPECT_EQ(top_k_accuracy().name(), "top_5_accuracy");
}

TEST_F(AccuracyTest, CountsEveryLabelOfASample) {
  const auto labels = torch::randint(2, {10, 5}).to(torch::kFloat);
  const auto share = [&](const torch::Tensor& said_yes) {
    return (said_yes == (labels > 0)).to(torch::kDouble).mean().item<double>();
  };
  EXPECT_DOUBLE_EQ(by_batches(accuracy_multi(), pred, labels), share(pred > 0));
  EXPECT_DOUBLE_EQ(
      by_batches(accuracy_multi(.2, false), pred.sigmoid(), labels),
      share(pred.sigmoid() > .2));
}

TEST_F(AccuracyTest, RejectsWrongShapesAndDtypes) {
  using Error = c10::ValueError;
  Metric metric = accuracy();
  expect_error<Error>(
      [&] { metric.update({pred}, {torch::arange(9)}); },
      {"[accuracy]", "[10, 5]", "[9]", "[N, C, ...]"});
  expect_error<Error>(
      [&] {
        metric.update({pred}, {torch::ones({10, 5})});
      },
      {"Float", "argmax(1)"});
  Metric five = top_k_accuracy();
  expect_error<Error>(
      [&] {
        five.update({torch::ones({2, 3})}, {torch::arange(2)});
      },
      {"[top_5_accuracy]", "3 classes"});
  expect_error<Error>([] { top_k_accuracy(0); }, {"k is 0"});
  expect_error<Error>([] { accuracy_multi(2); }, {"threshold is 2"});
  Metric multi = accuracy_multi();
  expect_error<Error>(
      [&] {
        multi.update({pred}, {torch::ones({10, 4})});
      },
      {"[accuracy_multi]", "[10, 5]", "[10, 4]"});
}

TEST_F(AccuracyTest, SupportsOneLogitForABinaryClassifier) {
  const auto logit = torch::tensor({{1.f}, {-1.f}, {2.f}, {-2.f}});
  const auto truth = torch::tensor({1, 0, 0, 0});
  for (const auto& shaped : {truth, truth.view({4, 1})}) {
    Metric metric = accuracy();
    metric.update({logit}, {shaped});
    EXPECT_EQ(metric.compute().item<double>(), 0.75);
  }
}

TEST_F(AccuracyTest, IgnoresTargetsThatAreNotClassesOfTheModel) {
  const auto truth = torch::tensor({0, 1, 2, 3, 4, 5, -100, 255, 0, 1});
  const auto known = truth.slice(0, 0, 5), last = truth.slice(0, 8);
  const auto rows = torch::cat({pred.slice(0, 0, 5), pred.slice(0, 8)});
  const auto rest = torch::cat({known, last});
  for (const auto& make :
       {+[] { return accuracy(); },
        +[] { return error_rate(); },
        +[] { return top_k_accuracy(2); }}) {
    Metric expected = make();
    expected.update({rows}, {rest});
    EXPECT_EQ(
        by_batches(make(), pred, truth),
        expected.compute().item<double>());
  }
}

}  // namespace
}  // namespace tern::accuracy_test
