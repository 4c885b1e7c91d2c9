#include "tern/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::sampler_test {
namespace {

/// Returns Pearson's chi-squared statistic of `counts` for a uniform
/// distribution, as a z-score (Wilson-Hilferty transformation).
double deviations(const std::vector<int>& counts, int degrees_of_freedom) {
  const double expected = std::accumulate(counts.begin(), counts.end(), 0.0) /
                          static_cast<double>(counts.size());
  double statistic = 0;
  for (const int count : counts) {
    statistic += (count - expected) * (count - expected) / expected;
  }
  const double spread = 2.0 / (9 * degrees_of_freedom);
  return (std::cbrt(statistic / degrees_of_freedom) - (1 - spread)) /
         std::sqrt(spread);
}

// `deviations` exceeds 4 by chance once in 30,000 cases; the seeds are fixed,
// so the tests are deterministic.
constexpr double kMostDeviations = 4;

/// Expects all samples to be equally likely at each position, and all pairs of
/// samples to be equally likely as neighbors, over many seeds of one epoch or
/// many epochs of one seed.
void expect_even_places(const Sampler& sampler, bool of_seeds) {
  const int64_t size = sampler.size();
  const auto cells = static_cast<size_t>(size * size);
  std::vector<int> places(cells), neighbors(cells);
  for (int64_t i = 0; i < 20000; ++i) {
    const auto order = of_seeds ? sampler.indices(static_cast<uint64_t>(i), 0)
                                : sampler.indices(42, i);
    for (int64_t place = 0; place < size; ++place) {
      ++places[place * size + order[place]];
      if (place > 0) ++neighbors[order[place - 1] * size + order[place]];
    }
  }
  // All rows and columns have the same sum.
  const int freedom = static_cast<int>((size - 1) * (size - 1));
  EXPECT_LT(deviations(places, freedom), kMostDeviations);
  const auto first = places.begin();
  EXPECT_LT(deviations({first, first + size}, size - 1), kMostDeviations);
  // No sample follows itself.
  for (int64_t i = size - 1; i >= 0; --i) {
    EXPECT_EQ(neighbors[i * (size + 1)], 0);
    neighbors.erase(neighbors.begin() + i * (size + 1));
  }
  EXPECT_LT(deviations(neighbors, freedom), kMostDeviations);
}

/// Expects all orders of four samples to be equally likely.
void expect_even_orders(const Sampler& sampler) {
  std::map<std::vector<int64_t>, int> orders;
  for (uint64_t seed = 0; seed < 24000; ++seed) {
    ++orders[sampler.indices(seed, 0)];
  }
  std::vector<int> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  ASSERT_EQ(counts.size(), 24u);
  EXPECT_LT(deviations(counts, 23), kMostDeviations);
}

TEST(SequentialSampler, CountsUp) {
  EXPECT_EQ(
      SequentialSampler(3).indices(1, 2),
      (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(SequentialSampler(0).indices(1, 2).empty());
}

TEST(RandomSampler, VisitsEverySampleOnceInADifferentOrderPerEpoch) {
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

TEST(RandomSampler, DrawsEveryOrderWithEqualProbability) {
  expect_even_orders(RandomSampler(4));
  expect_even_places(RandomSampler(12), /*of_seeds=*/true);
  expect_even_places(RandomSampler(12), /*of_seeds=*/false);
}

TEST(BufferedSampler, DrawsEveryOrderWithEqualProbabilityIfTheBufferHoldsAll) {
  expect_even_orders(BufferedSampler({1, 3}, 4));
  expect_even_places(BufferedSampler({5, 7}, 12), /*of_seeds=*/true);
}

TEST(BufferedSampler, KeepsTheOrderOfItsShardWithABufferOfOne) {
  const std::vector<int64_t> order = BufferedSampler({50}, 1).indices(1, 0);
  EXPECT_TRUE(std::ranges::is_sorted(order));
  EXPECT_FALSE(std::ranges::is_sorted(BufferedSampler({50}, 2).indices(1, 0)));
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

TEST(WeightedSampler, RejectsInvalidWeights) {
  EXPECT_THROW(WeightedSampler({}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({0, 0}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({1, -1}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({1, std::nan("")}), c10::ValueError);
  EXPECT_THROW(WeightedSampler({1}, -1), c10::ValueError);
}

}  // namespace
}  // namespace tern::sampler_test
