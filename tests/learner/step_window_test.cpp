#include "tern/learner/step_window.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace tern::step_window_test {
namespace {

using Samples = ShardedSampler::RealSamples;

// Returns the weight of one sample of each batch in the step, after gradients
// are averaged over ranks. All weights are equal if the window is correct.
std::vector<double> weights_of_samples(
    StepWindow& window,
    const std::vector<Samples>& batches,
    int64_t world_size) {
  std::vector<double> weights;
  for (size_t i = 0; i < batches.size(); ++i) {
    const double weight = window.add(batches[i], i + 1 == batches.size());
    weights.push_back(
        weight / static_cast<double>(batches[i].of_rank * world_size));
  }
  EXPECT_TRUE(window.is_complete());
  EXPECT_FALSE(window.is_open());
  for (double& weight : weights) weight *= window.correction();
  return weights;
}

void expect_all(const std::vector<double>& weights, double expected) {
  for (const double weight : weights) EXPECT_DOUBLE_EQ(weight, expected);
}

TEST(StepWindow, IsOneBatchByDefault) {
  StepWindow window;
  window.begin({}, /*batch_size=*/16, /*world_size=*/1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_DOUBLE_EQ(window.add({16, 16}, /*is_last=*/false), 1);
    EXPECT_TRUE(window.is_complete());
    EXPECT_DOUBLE_EQ(window.correction(), 1);
  }
}

TEST(StepWindow, WeightsUnevenBatchesOfTwoRanksBySamples) {
  StepWindow first, second;
  first.begin({}, 16, 2);
  second.begin({}, 16, 2);
  expect_all(weights_of_samples(first, {{16, 27}}, 2), 1.0 / 27);
  expect_all(weights_of_samples(second, {{11, 27}}, 2), 1.0 / 27);
}

TEST(StepWindow, CompletesAfterTheGivenBatchesAndRestarts) {
  StepWindow window;
  window.begin({.batches = 3}, 16, 1);
  for (int step = 0; step < 2; ++step) {
    for (const bool completes : {false, false, true}) {
      EXPECT_DOUBLE_EQ(window.add({16, 16}, false), 1.0 / 3);
      EXPECT_EQ(window.is_complete(), completes);
      EXPECT_EQ(window.is_open(), !completes);
    }
    EXPECT_DOUBLE_EQ(window.correction(), 1);
  }
}

TEST(StepWindow, CompletesAfterTheGivenSamples) {
  StepWindow window;
  window.begin({.batches = 0, .samples = 32}, 12, 1);
  window.add({12, 12}, false);
  window.add({12, 12}, false);
  EXPECT_TRUE(window.is_open());
  window.add({12, 12}, false);
  EXPECT_TRUE(window.is_complete());
  EXPECT_DOUBLE_EQ(window.correction(), 32.0 / 36);
}

TEST(StepWindow, WeightsEachSampleOfAShortLastWindowEquallyOnEveryRank) {
  StepWindow first, second;
  first.begin({.batches = 3}, 16, 2);
  second.begin({.batches = 3}, 16, 2);
  // 59 samples in two batches; a full window would be three batches of 32.
  expect_all(weights_of_samples(first, {{16, 32}, {14, 27}}, 2), 1.0 / 59);
  expect_all(weights_of_samples(second, {{16, 32}, {13, 27}}, 2), 1.0 / 59);
}

TEST(StepWindow, CanBeCompletedAfterItsLastBatch) {
  StepWindow known, unknown;
  known.begin({.batches = 3}, 16, 1);
  unknown.begin({.batches = 3}, 16, 1);
  for (StepWindow* const window : {&known, &unknown})
    window->add({16, 16}, false);
  known.add({9, 9}, /*is_last=*/true);
  unknown.add({9, 9}, /*is_last=*/false);
  EXPECT_TRUE(unknown.is_open());
  unknown.complete();
  EXPECT_FALSE(unknown.is_open());
  EXPECT_DOUBLE_EQ(unknown.correction(), known.correction());
  EXPECT_NE(known.correction(), 1);
}

TEST(StepWindow, ContinuesFromACheckpoint) {
  StepWindow whole, resumed;
  whole.begin({.batches = 3}, 16, 1);
  whole.add({16, 16}, false);
  whole.add({16, 16}, false);
  resumed.begin({.batches = 3}, 16, 1);
  resumed.restore(whole.batches(), whole.samples());
  EXPECT_TRUE(resumed.is_open());
  EXPECT_DOUBLE_EQ(resumed.add({9, 9}, true), whole.add({9, 9}, true));
  EXPECT_DOUBLE_EQ(resumed.correction(), whole.correction());
  EXPECT_TRUE(resumed.is_complete());
}

// Returns the weight of one unit of each batch's count in the step, after
// gradients are averaged over ranks.
std::vector<double> weights_of_counts(
    StepWindow& window,
    const std::vector<StepWindow::Counts>& batches,
    int64_t world_size,
    double& largest) {
  std::vector<double> weights;
  for (size_t i = 0; i < batches.size(); ++i) {
    window.add({8, 8 * world_size}, i + 1 == batches.size());
    const double weight = window.weigh(batches[i]);
    largest = std::max(largest, weight);
    for (double& earlier : weights) earlier *= window.rescale();
    if (batches[i].of_rank > 0) {
      weights.push_back(
          weight / (batches[i].of_rank * static_cast<double>(world_size)));
    }
  }
  EXPECT_TRUE(window.is_complete());
  for (double& weight : weights) weight *= window.correction();
  return weights;
}

TEST(StepWindow, WeightsAllCountedValuesEqually) {
  // Even if a batch counts nothing, or if the first batch's count is the
  // smallest.
  for (const auto& counts : std::vector<std::vector<StepWindow::Counts>>{
           {{100, 100}, {30, 30}, {1, 1}, {0, 0}},
           {{0, 0}, {1, 1}, {1000, 1000}, {1e6, 1e6}},
           {{0.5, 0.5}, {4, 4}}}) {
    StepWindow window;
    window.begin({.batches = 4}, 8, 1);
    double all = 0, largest = 0;
    for (const auto& batch : counts) all += batch.of_all;
    const auto weights = weights_of_counts(window, counts, 1, largest);
    for (const double weight : weights) EXPECT_NEAR(weight * all, 1, 1e-12);
    EXPECT_LE(largest, 1);
  }
  StepWindow first, second;
  first.begin({.batches = 2}, 8, 2);
  second.begin({.batches = 2}, 8, 2);
  double largest = 0;
  for (const double weight :
       weights_of_counts(first, {{3, 10}, {0, 50}}, 2, largest)) {
    EXPECT_NEAR(weight * 60, 1, 1e-12);
  }
  for (const double weight :
       weights_of_counts(second, {{7, 10}, {50, 50}}, 2, largest)) {
    EXPECT_NEAR(weight * 60, 1, 1e-12);
  }
}

TEST(StepWindow, IsOneBatchWithAnyCounts) {
  StepWindow window;
  window.begin({}, 8, 2);
  window.add({8, 16}, false);
  EXPECT_DOUBLE_EQ(window.weigh({3, 12}), 0.5);
  EXPECT_DOUBLE_EQ(window.weigh({0, 12}), 0);
  EXPECT_DOUBLE_EQ(window.weigh({0, 0}), 1) << "the loss is 0";
}

TEST(StepWindow, ContinuesFromACheckpointWithItsCounts) {
  StepWindow whole, resumed;
  whole.begin({.batches = 3}, 8, 1);
  whole.add({8, 8}, false);
  whole.weigh({20, 20});
  resumed.begin({.batches = 3}, 8, 1);
  resumed.restore(
      whole.batches(),
      whole.samples(),
      whole.counted(),
      whole.expected());
  for (StepWindow* const window : {&whole, &resumed}) window->add({8, 8}, true);
  EXPECT_DOUBLE_EQ(resumed.weigh({5, 5}), whole.weigh({5, 5}));
  EXPECT_DOUBLE_EQ(resumed.correction(), whole.correction());
  EXPECT_DOUBLE_EQ(whole.correction(), 60.0 / 25);
}

TEST(StepWindow, DiscardsTheAccumulationOfAnEndedEpoch) {
  StepWindow window;
  window.begin({.batches = 2}, 16, 1);
  window.add({16, 16}, false);
  window.close();
  EXPECT_FALSE(window.is_open());
  window.add({16, 16}, false);
  EXPECT_TRUE(window.is_open()) << "the new window again needs two batches";
}

}  // namespace
}  // namespace tern::step_window_test
