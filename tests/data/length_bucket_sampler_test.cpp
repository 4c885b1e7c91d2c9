#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/data_loader.h"
#include "tern/data/sample_dataset.h"
#include "tern/data/sampler.h"
#include "tern/data/support/random.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/random_cases.h"

namespace tern::length_bucket_sampler_test {
namespace {

using Indices = std::vector<int64_t>;

/// Lengths 0 to `size` - 1, each once, in random order.
Indices mixed_lengths(int64_t size) {
  return RandomSampler(size).indices(3, 0);
}

std::shared_ptr<const Sampler> buckets(
    const Indices& lengths,
    int64_t batch_size,
    LengthBucketOptions options = {}) {
  auto sampler = std::make_shared<LengthBucketSampler>(lengths, options);
  auto other = sampler->for_batches_of(batch_size);
  return other ? other : sampler;
}

/// Returns the number of padding values in the batches of an order.
int64_t
padding_of(const Indices& order, const Indices& lengths, int64_t batch_size) {
  int64_t padding = 0;
  for (size_t begin = 0; begin < order.size(); begin += batch_size) {
    int64_t longest = 0, sum = 0, count = 0;
    for (size_t i = begin; i < std::min(begin + batch_size, order.size());
         ++i) {
      longest = std::max(longest, lengths[order[i]]);
      sum += lengths[order[i]];
      ++count;
    }
    padding += longest * count - sum;
  }
  return padding;
}

Indices sorted(Indices values) {
  std::sort(values.begin(), values.end());
  return values;
}

Indices all_of(int64_t size) {
  return SequentialSampler(size).indices(0, 0);
}

TEST(LengthBucketSampler, YieldsEverySampleOnceInADifferentOrderPerEpoch) {
  const auto sampler = buckets(mixed_lengths(1003), 10);
  std::set<Indices> orders;
  for (const uint64_t seed : {1, 2}) {
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const Indices order = sampler->indices(seed, epoch);
      EXPECT_EQ(sorted(order), all_of(1003));
      EXPECT_EQ(order, sampler->indices(seed, epoch));
      orders.insert(order);
    }
  }
  EXPECT_EQ(orders.size(), 6u);
}

TEST(LengthBucketSampler, OfAnySizeYieldsEverySampleOnce) {
  for_random_cases(300, [](uint64_t seed) {
    SampleRng rng(seed, 0, 0);
    Indices lengths(rng.below(60));
    for (int64_t& length : lengths) {
      length = static_cast<int64_t>(rng.below(5));
    }
    const auto sampler = buckets(
        lengths,
        static_cast<int64_t>(1 + rng.below(12)),
        {.shuffle = rng.below(4) > 0,
         .pool = static_cast<int64_t>(1 + rng.below(5))});
    EXPECT_EQ(
        sorted(sampler->indices(seed, 1)),
        all_of(static_cast<int64_t>(lengths.size())));
  });
}

TEST(LengthBucketSampler, SplitsAPoolIntoBatchesOfSimilarLengths) {
  // A single pool: each batch holds ten consecutive lengths.
  const Indices lengths = mixed_lengths(200);
  const Indices order = buckets(lengths, 10)->indices(7, 0);
  Indices firsts;
  for (int64_t batch = 0; batch < 20; ++batch) {
    for (int64_t i = 1; i < 10; ++i) {
      EXPECT_EQ(lengths[order[batch * 10 + i]], lengths[order[batch * 10]] + i);
    }
    firsts.push_back(lengths[order[batch * 10]]);
  }
  EXPECT_FALSE(std::is_sorted(firsts.begin(), firsts.end()));
}

TEST(LengthBucketSampler, PadsLittleAndMixesTheSamplesOfBatches) {
  const Indices lengths = mixed_lengths(5000);
  const auto padding = [&](const Sampler& sampler) {
    return padding_of(sampler.indices(1, 0), lengths, 20);
  };
  const int64_t unsorted = padding(RandomSampler(5000));
  const auto sampler = buckets(lengths, 20);
  // A batch spans a 50th of the lengths, so padding averages half of that.
  EXPECT_LT(padding(*sampler), unsorted / 30);
  EXPECT_LT(padding(*buckets(lengths, 20, {.pool = 10})), unsorted / 6);
  // Few samples that share a batch with sample 0 do so again in the next epoch.
  std::set<int64_t> companions;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    const Indices order = sampler->indices(1, epoch);
    const auto place = std::find(order.begin(), order.end(), 0);
    const int64_t begin = (place - order.begin()) / 20 * 20;
    companions.insert(order.begin() + begin, order.begin() + begin + 20);
  }
  EXPECT_GT(companions.size(), 100u);
}

TEST(LengthBucketSampler, DividesBatchesIntoPoolsOfEqualSize) {
  // 51 batches, pools of at most 50: a last pool with one batch would mix all
  // lengths.
  const Indices lengths = mixed_lengths(510);
  const Indices order = buckets(lengths, 10)->indices(1, 0);
  for (int64_t batch = 0; batch < 51; ++batch) {
    EXPECT_LT(lengths[order[batch * 10 + 9]] - lengths[order[batch * 10]], 100);
  }
}

TEST(LengthBucketSampler, DropsSamplesOfAnyLengthWithDropLast) {
  const Indices lengths = mixed_lengths(47);
  const auto sampler = buckets(lengths, 10);
  std::set<int64_t> left_out;
  for (int64_t epoch = 0; epoch < 300; ++epoch) {
    const Indices order = sampler->indices(1, epoch);
    Indices tail;
    for (size_t i = 40; i < 47; ++i) tail.push_back(lengths[order[i]]);
    EXPECT_EQ(tail.back() - tail.front(), 6);  // dropped lengths are similar
    left_out.insert(tail.begin(), tail.end());
  }
  EXPECT_EQ(left_out.size(), 47u);
}

TEST(LengthBucketSampler, UnshuffledStartsWithTheLongest) {
  EXPECT_EQ(
      buckets({2, 5, 0, 5, 3}, 2, {.shuffle = false})->indices(1, 4),
      (Indices{1, 3, 4, 0, 2}));
}

TEST(LengthBucketSampler, UsesTheLoadersBatchSize) {
  const Indices lengths = mixed_lengths(100);
  std::vector<Sample> samples;
  for (const int64_t length : lengths) {
    samples.push_back({.inputs = {torch::ones({length})}});
  }
  const auto dataset = std::make_shared<SampleList>(samples, pad_sequences());
  const auto sampler = std::make_shared<LengthBucketSampler>(lengths);
  for (const int64_t workers : {0, 2}) {
    for (const bool drop_last : {false, true}) {
      DataLoader loader(
          dataset,
          {.batch_size = 8,
           .drop_last = drop_last,
           .sampler = sampler,
           .workers = workers});
      const Indices order = buckets(lengths, 8)->indices(42, 0);
      Indices seen;
      for (const Batch& batch : loader) {
        seen.insert(seen.end(), batch.indices.begin(), batch.indices.end());
        // All sequences in a batch have similar lengths.
        EXPECT_GE(
            batch.inputs[0].sum(1).min().item<float>() + 12,
            static_cast<float>(batch.inputs[0].size(1)));
      }
      ASSERT_EQ(seen.size(), drop_last ? 96u : 100u);
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), order.begin()));
      // A resumed epoch continues at its batch.
      auto rest = loader.epoch(0, 9);
      const Indices next = rest.next()->indices;
      EXPECT_TRUE(std::equal(next.begin(), next.end(), order.begin() + 72));
    }
  }
}

TEST(LengthBucketSampler, GivesAllRanksBatchesOfSimilarLengths) {
  const Indices lengths = mixed_lengths(245);
  const auto sampler = std::make_shared<LengthBucketSampler>(lengths);
  const std::vector<Sample> samples(
      lengths.size(),
      {.inputs = {torch::zeros({1})}});
  const DataLoader loader(
      std::make_shared<SampleList>(samples),
      {.batch_size = 4, .sampler = sampler, .workers = 0});
  for (const int64_t world_size : {1, 2, 3}) {
    const int64_t global = 4 * world_size;
    const Indices order = buckets(lengths, global)->indices(42, 0);
    std::vector<Indices> batches((245 + global - 1) / global);
    for (int64_t rank = 0; rank < world_size; ++rank) {
      size_t place = 0;
      for (const Batch& batch : loader.shard(rank, world_size, false)) {
        Indices& together = batches.at(place++);
        together.insert(
            together.end(),
            batch.indices.begin(),
            batch.indices.end());
      }
    }
    // Together, the ranks have the batches of one process with a larger batch
    // size.
    Indices all;
    for (const Indices& batch : batches) {
      all.insert(all.end(), batch.begin(), batch.end());
    }
    EXPECT_EQ(all, order) << world_size;
    EXPECT_EQ(sorted(all), all_of(245));
    for (const Indices& batch : batches) {
      Indices of_batch;
      for (const int64_t index : batch) of_batch.push_back(lengths[index]);
      const auto [least, most] =
          std::minmax_element(of_batch.begin(), of_batch.end());
      EXPECT_LT(*most - *least, 5 * global) << world_size;
    }
  }
}

TEST(LengthBucketSampler, RejectsOptionsOutOfRange) {
  expect_error<c10::ValueError>(
      [] {
        LengthBucketSampler({1, -2});
      },
      {"[LengthBucketSampler] lengths[1] is -2; expected 0 or more."});
  expect_error<c10::ValueError>(
      [] { LengthBucketSampler({1}, {.pool = 0}); },
      {"[LengthBucketSampler] the pool has 0 batches; expected 1 or more."});
  expect_error<c10::ValueError>(
      [] { LengthBucketSampler({1}).for_batches_of(0); },
      {"[LengthBucketSampler] a batch has 0 samples; expected 1 or more."});
}

}  // namespace
}  // namespace tern::length_bucket_sampler_test
