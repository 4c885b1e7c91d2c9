#include "tern/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::sampler_test {
namespace {

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(
      SequentialSampler(3).indices(1, 2),
      (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(SequentialSampler(0).indices(1, 2).empty());
}

TEST(RandomSampler, VisitsEverySampleOnceInAnOrderOfItsOwnPerEpoch) {
  const RandomSampler sampler(1000);
  auto first = sampler.indices(42, 0);
  auto second = sampler.indices(42, 1);
  EXPECT_NE(first, second);
  EXPECT_NE(first, sampler.indices(43, 0));
  EXPECT_EQ(first, sampler.indices(42, 0));
  std::vector<int64_t> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_NE(first, all);
  for (auto* order : {&first, &second}) {
    std::sort(order->begin(), order->end());
    EXPECT_EQ(*order, all);
  }
}

TEST(WeightedSampler, DrawsInProportionToTheWeights) {
  const WeightedSampler sampler({1, 0, 3}, 40000);
  std::vector<double> counts(3);
  for (const int64_t index : sampler.indices(42, 0)) ++counts.at(index);
  EXPECT_NEAR(counts[0], 10000, 400);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[2], 30000, 400);
  EXPECT_EQ(sampler.indices(42, 0), sampler.indices(42, 0));
}

TEST(WeightedSampler, RefusesWeightsThatAreNoProbabilities) {
  EXPECT_THROW(WeightedSampler({}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({0, 0}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({1, -1}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({1, std::nan("")}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({1}, -1), c10::ValueError);
}

}  // namespace
}  // namespace tern::sampler_test
