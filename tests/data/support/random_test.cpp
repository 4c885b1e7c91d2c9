#include "tern/data/support/random.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tern::random_test {
namespace {

TEST(SampleRng, IsPhilox4x32) {
  // First known answer of the authors' Random123 kat_vectors: key 0, counter 0.
  SampleRng rng(0, 0, 0);
  EXPECT_EQ(rng(), 0x6627e8d5u);
  EXPECT_EQ(rng(), 0xe169c58du);
  EXPECT_EQ(rng(), 0xbc57ac4cu);
  EXPECT_EQ(rng(), 0x9b00dbd8u);
}

TEST(SampleRng, HasSeedEpochAndSampleInTheirWordsOfKeyAndCounter) {
  SampleRng rng(0x100000002, 3, 0x400000005);
  for (const uint32_t expected :
       {0x438dafceu,
        0xcd41a66eu,
        0x683275aau,
        0x7563f39u,
        0x9b0550feu,
        0xc00c2dc4u}) {
    EXPECT_EQ(rng(), expected);
  }
}

TEST(SampleRng, DependsOnSeedEpochAndSample) {
  std::set<uint32_t> firsts;
  for (uint64_t seed : {0ull, 1ull, 1ull << 32}) {
    for (int64_t epoch : {0, 1, 2}) {
      for (int64_t sample : {int64_t{0}, int64_t{1}, int64_t{1} << 32}) {
        firsts.insert(SampleRng(seed, epoch, sample)());
      }
    }
  }
  EXPECT_EQ(firsts.size(), 27u);
}

TEST(SampleRng, UniformFillsZeroToOneAndNeverReachesOne) {
  SampleRng rng(7, 0, 0);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    const float value = rng.uniform();
    ASSERT_GE(value, 0.f);
    ASSERT_LT(value, 1.f);
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);
}

TEST(SampleRng, BelowIsEvenlySpread) {
  SampleRng rng(7, 0, 0);
  std::vector<int> counts(6);
  for (int i = 0; i < 60000; ++i) ++counts[rng.below(6)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

}  // namespace
}  // namespace tern::random_test
