#include "tern/learner/metrics/points.h"

#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"
#include "tern/tests/support/rank_threads.h"

namespace tern::points_test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

double
value_of(Metric metric, const torch::Tensor& pred, const Tensors& targets) {
  metric.update({pred}, targets);
  return metric.compute().item<double>();
}

// Two samples of three points, with boxes of 40 x 30 and 10 x 20. The
// predictions are off by 5, 10, 0 and 1, 4, 3 pixels.
class PointsTest : public testing::Test {
 protected:
  torch::Tensor target = torch::tensor(
      {{{0.f, 0.f}, {40.f, 0.f}, {40.f, 30.f}},
       {{0.f, 0.f}, {10.f, 20.f}, {5.f, 5.f}}});
  torch::Tensor pred = target + torch::tensor(
                                    {{{3.f, 4.f}, {-6.f, 8.f}, {0.f, 0.f}},
                                     {{1.f, 0.f}, {0.f, 4.f}, {0.f, -3.f}}});
  torch::Tensor visible = torch::ones({2, 3}, torch::kBool);
};

TEST_F(PointsTest, DistancesAreInPixels) {
  EXPECT_DOUBLE_EQ(
      value_of(mean_point_distance(), pred, {target, visible}),
      23. / 6);
  EXPECT_FALSE(mean_point_distance().higher_is_better());
}

TEST_F(PointsTest, CorrectMeansWithinAFractionOfTheBox) {
  // The limits are 8 for the box of 40 and 4 for the box of 20; 4 pixels are
  // still correct.
  const Metric metric = percentage_of_correct_keypoints();
  EXPECT_DOUBLE_EQ(value_of(metric, pred, {target, visible}), 5. / 6);
  EXPECT_EQ(metric.name(), "pck_0.2");
  EXPECT_TRUE(metric.higher_is_better());
  // Only visible points define the box: 0 to 40, and 5 x 15.
  visible[0][2] = false;
  visible[1][0] = false;
  EXPECT_DOUBLE_EQ(
      value_of(percentage_of_correct_keypoints(), pred, {target, visible}),
      2. / 4);
}

TEST_F(PointsTest, CorrectMeansWithinAFractionOfTheDistanceOfTwoPoints) {
  // The first and the last point are 50 and 7.07 apart.
  const PckOptions options = {
      .threshold = 0.1,
      .length = PckLength::points,
      .first = 0,
      .second = 2};
  const Metric metric = percentage_of_correct_keypoints(options);
  EXPECT_EQ(metric.name(), "pck_0.1_points");
  EXPECT_DOUBLE_EQ(value_of(metric, pred, {target, visible}), 2. / 6);
  // If one of the two is not visible, the sample does not count.
  visible[1][2] = false;
  EXPECT_DOUBLE_EQ(
      value_of(
          percentage_of_correct_keypoints(options),
          pred,
          {target, visible}),
      2. / 3);
  target[0][2] = target[0][0];
  EXPECT_TRUE(std::isnan(value_of(
      percentage_of_correct_keypoints(options),
      pred,
      {target, visible})));
}

TEST_F(PointsTest, CorrectMeansWithinAFractionOfTheImageDiagonal) {
  const Metric metric = percentage_of_correct_keypoints(
      {.threshold = 0.04,
       .length = PckLength::image,
       .height = 60,
       .width = 80});  // 4 pixels
  EXPECT_EQ(metric.name(), "pck_0.04_image");
  EXPECT_DOUBLE_EQ(value_of(metric, pred, {target, visible}), 4. / 6);
}

std::vector<Metric> all_metrics() {
  return {
      mean_point_distance(),
      percentage_of_correct_keypoints(),
      percentage_of_correct_keypoints(
          {.threshold = 0.5, .length = PckLength::points}),
      percentage_of_correct_keypoints(
          {.length = PckLength::image, .height = 10, .width = 10})};
}

TEST_F(PointsTest, InvisiblePointsDoNotCount) {
  for (const Metric& metric : all_metrics()) {
    const torch::Tensor seen =
        torch::tensor({{true, true, false}, {true, true, true}});
    const double value = value_of(metric.fresh_copy(), pred, {target, seen});
    torch::Tensor other = target.clone();
    other[0][2] = kNan;
    EXPECT_EQ(value_of(metric.fresh_copy(), pred, {other, seen}), value)
        << metric.name();
    // No point is visible in one sample, and then in no sample.
    const torch::Tensor first =
        torch::tensor({{true, true, true}, {false, false, false}});
    EXPECT_EQ(
        value_of(metric.fresh_copy(), pred, {target, first}),
        value_of(
            metric.fresh_copy(),
            pred.slice(0, 0, 1),
            {target.slice(0, 0, 1), visible.slice(0, 0, 1)}))
        << metric.name();
    EXPECT_TRUE(std::isnan(
        value_of(metric.fresh_copy(), pred, {target, torch::zeros_like(seen)})))
        << metric.name();
    EXPECT_TRUE(std::isnan(metric.compute().item<double>()));
  }
}

// Meta tensors have no values, so reading one would fail.
TEST_F(PointsTest, UpdateDoesNotSynchronizeWithTheDevice) {
  for (Metric metric : all_metrics()) {
    metric.update(
        {pred.to(torch::kMeta)},
        {target.to(torch::kMeta), visible.to(torch::kMeta)},
        torch::zeros({}, torch::kMeta));
  }
}

TEST_F(PointsTest, WithNaNAreNaN) {
  for (const Metric& metric : all_metrics()) {
    for (torch::Tensor* const points : {&pred, &target}) {
      const torch::Tensor before = points->clone();
      (*points)[0][1][0] = kNan;
      EXPECT_TRUE(
          std::isnan(value_of(metric.fresh_copy(), pred, {target, visible})))
          << metric.name();
      points->copy_(before);
    }
  }
}

TEST_F(PointsTest, DoNotDependOnBatchesOrRanks) {
  for_random_cases(20, [](uint64_t seed) {
    torch::manual_seed(seed);
    std::mt19937_64 random(seed);
    const int64_t samples = 1 + static_cast<int64_t>(random() % 9);
    const torch::Tensor points = torch::rand({samples, 4, 2}) * 20;
    const torch::Tensor guessed = points + torch::randn({samples, 4, 2}) * 4;
    const torch::Tensor seen = torch::rand({samples, 4}) < 0.7;
    for (const Metric& metric : all_metrics()) {
      const double value =
          value_of(metric.fresh_copy(), guessed, {points, seen});
      std::vector<Metric> ranks;
      for (uint64_t i = 0; i <= random() % 3; ++i) {
        ranks.push_back(metric.fresh_copy());
      }
      for (int64_t begin = 0; begin < samples;) {
        const int64_t end = begin + static_cast<int64_t>(random() % 4);
        Metric& rank = ranks[random() % ranks.size()];
        rank.update(
            {guessed.slice(0, begin, end)},
            {points.slice(0, begin, end), seen.slice(0, begin, end)});
        Metric resumed = metric.fresh_copy();
        resumed.load_state_dict(rank.state_dict().value());
        rank = resumed;
        begin = end;
      }
      testing_support::RankThreads(std::ssize(ranks)).sync(ranks);
      for (const Metric& rank : ranks) {
        const double spread = rank.compute().item<double>();
        EXPECT_TRUE(
            std::abs(spread - value) <= 1e-12 * std::abs(value) ||
            (std::isnan(spread) && std::isnan(value)))
            << metric.name() << ": " << spread << "; expected " << value;
      }
    }
  });
}

TEST_F(PointsTest, RejectInvalidTensors) {
  const auto refuses = [](const torch::Tensor& given, const Tensors& targets) {
    for (Metric metric : all_metrics()) {
      expect_error<c10::ValueError>(
          [&] { metric.update({given}, targets); },
          {"[" + metric.name() + "]", "[N, P, 2] Float", "[N, P] Bool"});
    }
  };
  refuses(pred, {target});
  refuses(pred, {target, visible, visible});
  refuses(pred, {target, visible.to(torch::kFloat)});
  refuses(pred, {target, visible.slice(1, 0, 2)});
  refuses(pred.flatten(1), {target.flatten(1), visible});
  refuses(pred.slice(0, 0, 1), {target, visible});
  refuses(pred, {target.to(torch::kLong), visible});
}

TEST_F(PointsTest, RejectInvalidOptions) {
  expect_error<c10::ValueError>(
      [] { percentage_of_correct_keypoints({.threshold = 0}); },
      {"threshold is 0", "> 0"});
  expect_error<c10::ValueError>(
      [] {
        percentage_of_correct_keypoints(
            {.length = PckLength::points, .first = 1, .second = 1});
      },
      {"between points 1 and 1", "two different"});
  expect_error<c10::ValueError>(
      [] { percentage_of_correct_keypoints({.length = PckLength::image}); },
      {"0 x 0", "`height` and `width`"});
  Metric metric = percentage_of_correct_keypoints(
      {.length = PckLength::points, .second = 3});
  expect_error<c10::ValueError>(
      [&] {
        metric.update({pred}, {target, visible});
      },
      {"[pck_0.2_points]", "points 0 and 3", "there are 3"});
}

}  // namespace
}  // namespace tern::points_test
