#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tern/data/sampler.h"
#include "tern/tests/support/expect_error.h"

namespace tern::sharded_sampler_test {
namespace {

std::vector<ShardedSampler> shards(
    std::shared_ptr<const Sampler> whole,
    ShardOptions options) {
  std::vector<ShardedSampler> result;
  for (options.rank = 0; options.rank < options.world_size; ++options.rank) {
    result.emplace_back(whole, options);
  }
  return result;
}

TEST(ShardedSampler, AssignsEverySampleToOneRankOnce) {
  for (const int64_t samples : {1, 7, 64, 100, 1001}) {
    for (const int64_t world : {1, 2, 3, 8}) {
      const auto whole = std::make_shared<RandomSampler>(samples);
      std::vector<int64_t> seen;
      for (const auto& shard :
           shards(whole, {.world_size = world, .batch_size = 8})) {
        std::vector<int64_t> mine = shard.indices(5, 2);
        ASSERT_EQ(static_cast<int64_t>(mine.size()), shard.size());
        const int64_t batches = (shard.size() + 7) / 8;
        if (shard.real_samples(batches - 1).of_rank == 0) mine.pop_back();
        seen.insert(seen.end(), mine.begin(), mine.end());
      }
      std::sort(seen.begin(), seen.end());
      std::vector<int64_t> all(samples);
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(seen, all) << samples << " samples, " << world << " ranks";
    }
  }
}

TEST(ShardedSampler, AssignsTheSameNumberOfBatchesToAllRanks) {
  for (const int64_t samples : {1, 33, 127, 1001}) {
    const auto all = shards(
        std::make_shared<SequentialSampler>(samples),
        {.world_size = 3, .batch_size = 16});
    const int64_t batches = (all[0].size() + 15) / 16;
    EXPECT_EQ(batches, (samples + 47) / 48);
    for (const auto& shard : all) EXPECT_EQ((shard.size() + 15) / 16, batches);
  }
}

TEST(ShardedSampler, SplitsTheBatchesOfOneProcessWithALargerBatchSize) {
  const auto whole = std::make_shared<RandomSampler>(100);
  const std::vector<int64_t> one = whole->indices(1, 0);
  const auto all = shards(whole, {.world_size = 2, .batch_size = 10});
  for (int64_t batch = 0; batch < 5; ++batch) {
    std::vector<int64_t> together;
    for (const auto& shard : all) {
      const auto mine = shard.indices(1, 0);
      const auto begin = mine.begin() + 10 * batch;
      together.insert(together.end(), begin, begin + 10);
    }
    EXPECT_TRUE(
        std::equal(together.begin(), together.end(), one.begin() + 20 * batch));
  }
}

TEST(ShardedSampler, ReportsHowManySamplesOfABatchAreReal) {
  // 21 samples: a batch of 20 and a batch of one sample, which rank 1 also
  // gets.
  const auto all = shards(
      std::make_shared<SequentialSampler>(21),
      {.world_size = 2, .batch_size = 10});
  EXPECT_EQ(all[1].indices(0, 0).back(), 20);
  EXPECT_EQ(all[0].real_samples(0).of_all, 20);
  EXPECT_EQ(all[0].real_samples(1).of_rank, 1);
  EXPECT_EQ(all[1].real_samples(1).of_rank, 0);
  EXPECT_EQ(all[1].real_samples(1).of_all, 1);
}

TEST(ShardedSampler, DropsTheTailOfAllRanksTogether) {
  // 39 samples: rank 0 could fill two batches of 10, but rank 1 could not.
  for (const auto& shard : shards(
           std::make_shared<SequentialSampler>(39),
           {.world_size = 2, .batch_size = 10, .drop_last = true})) {
    EXPECT_EQ(shard.size(), 10);
  }
}

TEST(ShardedSampler, NeedsNoEqualBatchesForValidation) {
  const auto all = shards(
      std::make_shared<SequentialSampler>(1),
      {.world_size = 2, .batch_size = 10, .equal_batches = false});
  EXPECT_EQ(all[0].size(), 1);
  EXPECT_EQ(all[1].size(), 0);
}

TEST(ShardedSampler, RejectsOptionsThatLeaveARankWithoutSamples) {
  const auto ten = std::make_shared<SequentialSampler>(10);
  expect_error<c10::ValueError>(
      [&] {
        ShardedSampler(
            ten,
            {.world_size = 4, .batch_size = 4, .drop_last = true});
      },
      {"10 samples", "batch of 4", "4 ranks", "smaller batch size"});
  expect_error<c10::ValueError>(
      [&] { ShardedSampler(ten, {.rank = 2, .world_size = 2}); },
      {"rank 2 of 2"});
  expect_error<c10::ValueError>(
      [&] { ShardedSampler(nullptr, {}); },
      {"is null"});
}

}  // namespace
}  // namespace tern::sharded_sampler_test
