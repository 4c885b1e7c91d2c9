#include "tern/learner/loss_average.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tern/tests/support/random_cases.h"

namespace tern::loss_average_test {
namespace {

// The mean of the losses, weighted by 0.98^age times the batch's count.
double by_hand(const std::vector<CountedLoss>& batches) {
  double sum = 0, weight = 0;
  for (const CountedLoss& batch : batches) {
    if (batch.count == 0) continue;
    sum = 0.98 * sum + batch.count * batch.loss;
    weight = 0.98 * weight + batch.count;
  }
  return sum / weight;
}

TEST(LossAverage, IsTheMeanWeightedByAgeAndCount) {
  for_random_cases(20, [](uint64_t seed) {
    std::mt19937_64 draw(seed);
    LossAverage average;
    std::vector<CountedLoss> batches;
    for (int i = 0; i < 50; ++i) {
      const auto count = static_cast<double>(draw() % 4);
      const double loss =
          count == 0 ? std::nan("") : static_cast<double>(draw() % 1000) / 100;
      batches.push_back({loss, count});
      average.add(batches.back());
      if (!average.is_empty()) {
        EXPECT_NEAR(average.value(), by_hand(batches), 1e-9);
      }
    }
  });
}

TEST(LossAverage, WithEqualCountsIsBitIdenticalToFastais) {
  LossAverage average;
  double sum = 0;
  for (int i = 1; i <= 100; ++i) {
    const double loss = 1.0 / i;
    average.add({loss, 64});
    sum = 0.98 * sum + (1 - 0.98) * loss;
    EXPECT_EQ(average.value(), sum / (1 - std::pow(0.98, i)));
  }
}

TEST(LossAverage, IsNaNBeforeABatchHasCounted) {
  LossAverage average;
  average.add({std::nan(""), 0});
  EXPECT_TRUE(average.is_empty());
  EXPECT_TRUE(std::isnan(average.value()));
  average.add({2, 5});
  EXPECT_NEAR(average.value(), 2, 1e-12);
}

TEST(LossAverage, ContinuesFromACheckpoint) {
  LossAverage whole, resumed;
  whole.add({1, 3});
  whole.add({2, 7});
  resumed.restore(whole.sum(), whole.batches(), whole.missing(), whole.unit());
  whole.add({5, 2});
  resumed.add({5, 2});
  EXPECT_EQ(resumed.value(), whole.value());
}

}  // namespace
}  // namespace tern::loss_average_test
