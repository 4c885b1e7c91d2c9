// A sample that occurs several times in an epoch gets different random numbers
// each time, which do not depend on the number of workers and ranks or on a
// resume.

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/data/data_loader.h"
#include "tern/tests/support/random_cases.h"

namespace tern::occurrences_test {
namespace {

// The input of sample i is a random number, its target is i.
class Drawing final : public Dataset {
 public:
  explicit Drawing(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    const int64_t count = std::ssize(indices);
    const torch::Tensor x = context.empty({count}, torch::kDouble);
    const torch::Tensor y = context.empty({count}, torch::kLong);
    for (int64_t row = 0; row < count; ++row) {
      SampleRng rng = context.of_row(row).rng(indices[row]);
      x[row] = static_cast<double>(uint64_t{rng()} << 20 | rng() >> 12);
      y[row] = indices[row];
    }
    return {{x}, {y}};
  }

 private:
  int64_t size_;
};

struct Drawn {
  int64_t sample;
  double number;
  bool operator==(const Drawn&) const = default;
};

std::vector<Drawn>
drawn_from(const DataLoader& loader, int64_t epoch, int64_t first_batch = 0) {
  std::vector<Drawn> all;
  auto pass = loader.epoch(epoch, first_batch);
  while (const auto batch = pass.next()) {
    for (int64_t row = 0; row < batch->size(); ++row) {
      all.push_back(
          {batch->targets[0][row].item<int64_t>(),
           batch->inputs[0][row].item<double>()});
    }
  }
  return all;
}

void expect_all_different(const std::vector<Drawn>& drawn) {
  std::set<double> numbers;
  for (const Drawn& one : drawn) numbers.insert(one.number);
  EXPECT_EQ(numbers.size(), drawn.size());
}

TEST(Occurrences, OfASampleHaveDifferentRandomNumbers) {
  const auto samples = std::make_shared<Drawing>(3);
  const DataLoader loader(
      samples,
      {.batch_size = 4,
       .sampler = std::make_shared<WeightedSampler>(
           std::vector<double>{1, 1, 1},
           /*num_samples=*/30),
       .workers = 0});
  expect_all_different(drawn_from(loader, 0));
}

// So runs without repeated samples are bit-identical to those without
// occurrence counts.
TEST(Occurrences, TheFirstHasTheRandomNumbersOfTheSample) {
  const auto samples = std::make_shared<Drawing>(5);
  const DataLoader in_order(samples, {.batch_size = 2, .workers = 0});
  const std::vector<Drawn> plain = drawn_from(in_order, 4);
  const DataLoader repeated(
      std::make_shared<Subset>(samples, std::vector<int64_t>{3, 1, 3, 3}),
      {.batch_size = 4, .workers = 0});
  const std::vector<Drawn> drawn = drawn_from(repeated, 4);
  EXPECT_EQ(drawn[0], plain[3]);
  EXPECT_EQ(drawn[1], plain[1]);
  expect_all_different(drawn);
}

TEST(Occurrences, OfADatasetConcatenatedWithItselfDiffer) {
  const auto samples = std::make_shared<Drawing>(4);
  const auto twice = std::make_shared<Concat>(
      std::vector<std::shared_ptr<const Dataset>>{samples, samples});
  const DataLoader loader(twice, {.batch_size = 3, .workers = 0});
  const std::vector<Drawn> drawn = drawn_from(loader, 0);
  ASSERT_EQ(drawn.size(), 8u);
  expect_all_different(drawn);
}

TEST(Occurrences, ViewsOfABatchDifferAndTheFirstEqualsTheBatch) {
  const Drawing samples(6);
  const std::vector<int64_t> indices = {4, 0, 5};
  const BatchContext context{.seed = 3, .epoch = 2};
  const auto view = [&](int64_t number) {
    return samples.get_batch(indices, context.for_view(number)).inputs[0];
  };
  const torch::Tensor batch = samples.get_batch(indices, context).inputs[0];
  EXPECT_TRUE(torch::equal(view(0), batch));
  EXPECT_TRUE(view(1).ne(batch).all().item<bool>());
  EXPECT_TRUE(view(1).ne(view(2)).all().item<bool>());
  EXPECT_TRUE(torch::equal(view(2), view(2)));
  // Also views of views.
  const torch::Tensor twice =
      samples.get_batch(indices, context.for_view(1).for_view(1)).inputs[0];
  EXPECT_TRUE(twice.ne(batch).all().item<bool>());
  EXPECT_TRUE(twice.ne(view(2)).all().item<bool>());
}

// A dataset may have more samples than memory for a count of each.
TEST(Occurrences, AreCountedInADatasetOfAnySize) {
  class Pairs final : public Sampler {
   public:
    int64_t size() const override { return 4; }
    std::vector<int64_t> indices(uint64_t, int64_t) const override {
      return {int64_t{1} << 40, 3, int64_t{1} << 40, 0};
    }
  };
  const DataLoader loader(
      std::make_shared<Drawing>(int64_t{1} << 41),
      {.batch_size = 4, .sampler = std::make_shared<Pairs>(), .workers = 0});
  const std::vector<Drawn> drawn = drawn_from(loader, 0);
  ASSERT_EQ(drawn.size(), 4u);
  EXPECT_EQ(drawn[0].sample, drawn[2].sample);
  expect_all_different(drawn);
}

// Returns a random dataset of several layers that repeat samples.
std::shared_ptr<const Dataset> draw_dataset(std::mt19937_64& random) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  std::shared_ptr<const Dataset> data = std::make_shared<Drawing>(1 + below(9));
  for (int64_t layers = below(4); layers > 0; --layers) {
    if (below(2)) {
      std::vector<int64_t> indices(1 + below(12));
      for (int64_t& index : indices) index = below(data->size());
      data = std::make_shared<Subset>(data, indices);
    } else {
      data = std::make_shared<Concat>(
          std::vector<std::shared_ptr<const Dataset>>(1 + below(3), data));
    }
  }
  return data;
}

TEST(Occurrences, AreTheSameForAnyWorkersAndRanksAndAfterAResume) {
  for_random_cases(200, [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto below = [&](int64_t n) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    const auto data = draw_dataset(random);
    DataLoaderOptions options{
        .batch_size = 1 + below(7),
        .shuffle = below(2) == 0,
        .training = true,
        .seed = random(),
        .workers = 0};
    if (below(2)) {
      options.sampler = std::make_shared<WeightedSampler>(
          std::vector<double>(data->size(), 1.0),
          1 + below(40));
    }
    const int64_t epoch = below(3);
    const DataLoader alone(data, options);
    const std::vector<Drawn> drawn = drawn_from(alone, epoch);
    expect_all_different(drawn);

    DataLoaderOptions with_workers = options;
    with_workers.workers = 2;
    EXPECT_EQ(drawn_from(DataLoader(data, with_workers), epoch), drawn);

    const int64_t first = below(alone.size());
    const std::vector<Drawn> rest = drawn_from(alone, epoch, first);
    EXPECT_TRUE(std::ranges::equal(
        rest,
        std::vector<Drawn>(
            drawn.begin() + first * options.batch_size,
            drawn.end())));

    // On one or more ranks, whose batches together equal the batches of one
    // process.
    const int64_t ranks = 1 + below(3);
    DataLoaderOptions of_rank = options;
    of_rank.batch_size = 2;
    DataLoaderOptions joint = options;
    joint.batch_size = 2 * ranks;
    std::multiset<double> together, expected;
    for (const Drawn& one : drawn_from(DataLoader(data, joint), epoch)) {
      expected.insert(one.number);
    }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const DataLoader part =
          DataLoader(data, of_rank).shard(rank, ranks, /*equal_batches=*/false);
      for (const Drawn& one : drawn_from(part, epoch)) {
        together.insert(one.number);
      }
    }
    EXPECT_EQ(together, expected);
  });
}

}  // namespace
}  // namespace tern::occurrences_test
