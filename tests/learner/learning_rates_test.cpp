#include "tern/learner/learning_rates.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace tern::learning_rates_test {
namespace {

using Rates = std::vector<double>;

TEST(LearningRates, ResolveInFastaisWays) {
  EXPECT_EQ(LearningRates().resolve(3, 1), (Rates{1, 1, 1}));
  EXPECT_EQ(LearningRates(2.0).resolve(3, 1), (Rates{2, 2, 2}));
  EXPECT_EQ(LearningRates({1, 2}).resolve(1, 1), (Rates{2}));
  EXPECT_EQ(LearningRates({1, 2, 4}).resolve(3, 1), (Rates{1, 2, 4}));
  EXPECT_EQ(LearningRates::per_group({1, 2}).resolve(2, 1), (Rates{1, 2}));
  EXPECT_EQ(LearningRates::up_to(2).resolve(3, 1), (Rates{0.2, 0.2, 2}));
  const Rates slice = LearningRates({1e-5, 1e-3}).resolve(3, 1);
  EXPECT_NEAR(slice[1], 1e-4, 1e-18);
  EXPECT_EQ(slice[2], 1e-3);
}

TEST(LearningRates, RefuseWhatFitsNoGroupsOrIsNoRate) {
  EXPECT_THROW(LearningRates({1, 2, 3}).resolve(2, 1), c10::ValueError);
  EXPECT_THROW(LearningRates(-1.0).resolve(1, 1), c10::ValueError);
  EXPECT_THROW(LearningRates(std::nan("")).resolve(1, 1), c10::ValueError);
  EXPECT_THROW(LearningRates({0, 1}).resolve(3, 1), c10::ValueError);
}

}  // namespace
}  // namespace tern::learning_rates_test
