#include "tern/data/data_loader.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <ranges>
#include <set>
#include <thread>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/data/formats/error.h"
#include "tern/tests/support/expect_error.h"

namespace tern::data_loader_test {
namespace {

// Each sample consists of its index and a random number.
class Counting final : public Dataset {
 public:
  explicit Counting(int64_t size) : size_(size) {}
  int64_t size() const override { return size_; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    const auto n = static_cast<int64_t>(indices.size());
    Batch batch{
        {context.empty({n, 1}, torch::kFloat)},
        {context.empty({n}, torch::kLong)}};
    for (int64_t i = 0; i < n; ++i) {
      batch.inputs[0][i][0] = context.rng(indices[i]).uniform();
      batch.targets[0][i] = indices[i];
    }
    return batch;
  }

 private:
  int64_t size_;
};

// Calls a function for each batch that a worker loads.
class Calling final : public Dataset {
 public:
  explicit Calling(std::function<void(c10::ArrayRef<int64_t>)> call)
      : call_(std::move(call)) {}
  int64_t size() const override { return 100; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
      const override {
    call_(indices);
    return {{torch::zeros({static_cast<int64_t>(indices.size()), 1})}, {}};
  }
  std::string describe(int64_t index) const override {
    return "picture_" + std::to_string(index) + ".png";
  }

 private:
  std::function<void(c10::ArrayRef<int64_t>)> call_;
};

std::vector<Batch> all_batches(const DataLoader& loader, int64_t epoch) {
  std::vector<Batch> batches;
  auto pass = loader.epoch(epoch);
  while (auto batch = pass.next()) batches.push_back(std::move(*batch));
  return batches;
}

// A joined thread stays listed for a moment, longer in an emulator, so this
// waits until the count stays the same for a while.
int64_t thread_count() {
  const std::chrono::milliseconds pause(std::getenv("TERN_EMULATOR") ? 15 : 1);
  int64_t count = -1;
  for (int unchanged = 0; unchanged < 20; ++unchanged) {
    const int64_t now = std::distance(
        std::filesystem::directory_iterator("/proc/self/task"),
        {});
    if (now != count) unchanged = 0;
    count = now;
    std::this_thread::sleep_for(pause);
  }
  return count;
}

// Memory is reused, but changes that a user makes to a tensor are not carried
// over.
TEST(DataLoader, ReturnsNewTensorsInReusedMemory) {
  const auto points = std::make_shared<TensorDataset>(
      Tensors{torch::ones({8, 3})},
      Tensors{torch::zeros({8})});
  DataLoader loader(points, {.batch_size = 2, .workers = 0});
  std::set<const void*> memory;
  for (int pass = 0; pass < 2; ++pass) {
    for (const Batch& batch : loader) {
      torch::Tensor x = batch.inputs[0];
      memory.insert(x.const_data_ptr());
      ASSERT_FALSE(x.requires_grad());
      ASSERT_EQ(x.sizes(), (std::vector<int64_t>{2, 3}));
      x.requires_grad_(true);
      (2 * x).sum().backward();
      ASSERT_TRUE(torch::equal(x.grad(), torch::full({2, 3}, 2.0)));
      const torch::NoGradGuard no_grad;
      x.t_();
    }
  }
  EXPECT_LE(memory.size(), 2u);
}

class WorkersTest : public testing::TestWithParam<int64_t> {};

TEST_P(WorkersTest, YieldTheSameBatchesForAnyNumberOfWorkers) {
  const auto dataset = std::make_shared<Counting>(103);
  const DataLoader plain(
      dataset,
      {.batch_size = 10, .shuffle = true, .workers = 0});
  const DataLoader loader(
      dataset,
      {.batch_size = 10, .shuffle = true, .workers = GetParam()});
  for (const int64_t epoch : {0, 1}) {
    const auto expected = all_batches(plain, epoch);
    const auto batches = all_batches(loader, epoch);
    ASSERT_EQ(batches.size(), 11u);
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_TRUE(torch::equal(batches[i].inputs[0], expected[i].inputs[0]));
      EXPECT_TRUE(torch::equal(batches[i].targets[0], expected[i].targets[0]));
    }
  }
}

TEST_P(WorkersTest, ContinueExactlyAtAGivenBatch) {
  const DataLoader loader(
      std::make_shared<Counting>(103),
      {.batch_size = 10, .shuffle = true, .workers = GetParam()});
  const auto whole = all_batches(loader, 3);
  auto rest = loader.epoch(3, /*first_batch=*/7);
  for (size_t i = 7; i < whole.size(); ++i) {
    EXPECT_TRUE(torch::equal(rest.next()->targets[0], whole[i].targets[0]));
  }
  EXPECT_FALSE(rest.next());
}

// The value of a sample is its index; multiples of 3 are left out.
class WithGaps final : public Dataset {
 public:
  int64_t size() const override { return 20; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
      const override {
    Batch batch;
    std::vector<int64_t> kept;
    for (int64_t row = 0; row < std::ssize(indices); ++row) {
      if (indices[row] % 3 == 0) {
        batch.left_out.push_back(row);
      } else {
        kept.push_back(indices[row]);
      }
    }
    batch.inputs = {
        context.empty({std::ssize(kept), 1}, torch::kLong)
            .copy_(torch::tensor(kept, torch::kLong).view({-1, 1}))};
    return batch;
  }
};

TEST_P(WorkersTest, ReportTheSamplesOfABatchIfTheDatasetLeavesSomeOut) {
  const auto gaps = std::make_shared<WithGaps>();
  const auto even = std::make_shared<Subset>(
      gaps,
      std::vector<int64_t>{0, 2, 4, 6, 6, 8, 10, 12});
  const auto all = std::make_shared<Concat>(
      std::vector<std::shared_ptr<const Dataset>>{even, gaps, even});
  const auto sample_of = [&](int64_t index) {
    const int64_t places[] = {0, 2, 4, 6, 6, 8, 10, 12};
    return index < 8    ? places[index]
           : index < 28 ? index - 8
                        : places[index - 28];
  };
  const DataLoader loader(
      all,
      {.batch_size = 5, .shuffle = true, .workers = GetParam()});
  std::vector<int64_t> seen;
  for (const Batch& batch : all_batches(loader, 1)) {
    EXPECT_LE(batch.size() + std::ssize(batch.left_out), 5);
    ASSERT_EQ(std::ssize(batch.indices), batch.size());
    for (int64_t row = 0; row < batch.size(); ++row) {
      const int64_t index = batch.indices[row];
      EXPECT_EQ(batch.inputs[0][row].item<int64_t>(), sample_of(index));
      seen.push_back(index);
    }
  }
  std::vector<int64_t> expected;
  for (int64_t index = 0; index < all->size(); ++index) {
    if (sample_of(index) % 3 != 0) expected.push_back(index);
  }
  std::ranges::sort(seen);
  EXPECT_EQ(seen, expected);
}

// An error message may refer to the batch and differ for the sample alone.
TEST_P(WorkersTest, NameTheSampleEvenIfItFailsAloneWithADifferentMessage) {
  const DataLoader loader(
      std::make_shared<Calling>([](c10::ArrayRef<int64_t> indices) {
        for (size_t row = 0; row < indices.size(); ++row) {
          if (indices[row] != 4) continue;
          throw std::runtime_error("row " + std::to_string(row) + " is bad");
        }
      }),
      {.batch_size = 10, .workers = GetParam()});
  auto pass = loader.epoch(0);
  expect_error<DataError>(
      [&] { pass.next(); },
      {"row 4 is bad", "Alone, sample 4, picture_4.png, fails: row 0 is bad"});
}

TEST_P(WorkersTest, PropagateErrorsOfTheDatasetWithIndexAndPath) {
  const int64_t before = thread_count();
  for (const bool is_std : {true, false}) {
    const DataLoader loader(
        std::make_shared<Calling>([is_std](c10::ArrayRef<int64_t> indices) {
          for (const int64_t index : indices) {
            if (index != 57) continue;
            if (is_std) throw std::out_of_range("no such pixel");
            throw 7;
          }
        }),
        {.batch_size = 10, .workers = GetParam()});
    auto pass = loader.epoch(0);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(pass.next());
    try {
      pass.next();
      FAIL();
    } catch (const DataError& error) {
      EXPECT_EQ(error.path(), "picture_57.png");
      EXPECT_NE(std::string(error.what()).find("sample 57"), std::string::npos)
          << error.what();
      if (is_std) {
        EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
      } else {
        EXPECT_THROW(std::rethrow_if_nested(error), int);
      }
    }
    EXPECT_FALSE(pass.next());
  }
  EXPECT_EQ(thread_count(), before);
}

// Fails at one sample; with or without descriptions of its samples.
class Failing final : public Dataset {
 public:
  Failing(std::string description, std::function<void()> fail)
      : description_(std::move(description)), fail_(std::move(fail)) {}
  int64_t size() const override { return 20; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
      const override {
    for (const int64_t index : indices) {
      if (index == 6) fail_();
    }
    return {{torch::zeros({std::ssize(indices), 1})}, {}};
  }
  std::string describe(int64_t index) const override {
    return description_.empty() ? Dataset::describe(index) : description_;
  }

 private:
  std::string description_;
  std::function<void()> fail_;
};

TEST_P(WorkersTest, NameASampleAndAFileOnce) {
  const auto message_of_loader = [](const char* description,
                                    std::function<void()> fail) {
    const DataLoader loader(
        std::make_shared<Failing>(description, std::move(fail)),
        {.batch_size = 4, .workers = GetParam()});
    auto pass = loader.epoch(0);
    pass.next();
    return error_of<DataError>([&] { pass.next(); });
  };
  const auto saying = [](const char* text) {
    return [text] { throw std::runtime_error(text); };
  };
  EXPECT_EQ(
      message_of_loader("", saying("no such row")),
      "sample 6: no such row");
  EXPECT_EQ(
      message_of_loader("", saying("inputs[0] of sample 6 is empty")),
      "inputs[0] of sample 6 is empty");
  EXPECT_EQ(
      message_of_loader("", saying("sample 61 and sample 6b are fine")),
      "sample 6: sample 61 and sample 6b are fine");
  EXPECT_EQ(
      message_of_loader("a.png", saying("no such pixel")),
      "a.png: no such pixel (sample 6 of the dataset)");
  EXPECT_EQ(
      message_of_loader("a.png", saying("a.png has no label")),
      "a.png has no label (sample 6 of the dataset)");
  EXPECT_EQ(
      message_of_loader("a.tar, sample 6", saying("no such field")),
      "a.tar, sample 6: no such field");
  EXPECT_EQ(
      message_of_loader("a.png", [] { throw DataError("a.png", "is empty"); }),
      "a.png: is empty (sample 6 of the dataset)");
}

TEST_P(WorkersTest, NameTheFirstSampleOfABatchOnce) {
  class Short final : public Dataset {
   public:
    int64_t size() const override { return 4; }
    Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
        const override {
      TORCH_CHECK(!fails_together_ || indices.size() < 2, "too many");
      return {{torch::zeros({1, 1})}, {}};
    }
    explicit Short(bool fails_together) : fails_together_(fails_together) {}

   private:
    bool fails_together_;
  };
  const auto message = [](bool fails_together) {
    const DataLoader short_one(
        std::make_shared<Short>(fails_together),
        {.batch_size = 4, .workers = GetParam()});
    auto pass = short_one.epoch(0);
    return error_of<DataError>([&] { pass.next(); });
  };
  EXPECT_EQ(
      message(/*fails_together=*/true),
      "too many. In a batch of 4 samples, the first is sample 0.");
  EXPECT_TRUE(message(/*fails_together=*/false)
                  .starts_with("sample 0: get_batch was called with 4 indices, "
                               "starting with this sample, and returned "
                               "inputs"));
}

TEST_P(WorkersTest, LeaveNoThreadWhenAPassIsAbandoned) {
  const DataLoader loader(
      std::make_shared<Counting>(1000),
      {.batch_size = 1, .workers = GetParam()});
  all_batches(loader, 0);
  const int64_t before = thread_count();
  for (int i = 0; i < 20; ++i) {
    auto pass = loader.epoch(i);
    pass.next();
  }
  EXPECT_EQ(thread_count(), before);
}

TEST_P(WorkersTest, LeaveNoThreadWhenALoopIsLeftEarly) {
  DataLoader loader(
      std::make_shared<Counting>(1000),
      {.batch_size = 1, .workers = GetParam()});
  all_batches(loader, 0);
  const int64_t before = thread_count();
  for (const Batch& batch : loader) {
    EXPECT_EQ(thread_count(), before + GetParam());
    EXPECT_EQ(batch.size(), 1);
    break;
  }
  EXPECT_EQ(thread_count(), before);
}

static_assert(std::ranges::input_range<DataLoader>);
static_assert(
    std::is_same_v<std::ranges::range_reference_t<DataLoader>, const Batch&>);

TEST_P(WorkersTest, StartTheNextPassInEachLoop) {
  DataLoader loader(
      std::make_shared<Counting>(103),
      {.batch_size = 10, .shuffle = true, .workers = GetParam()});
  for (const int64_t epoch : {0, 1, 2}) {
    // Passes started by number do not count.
    const auto expected = all_batches(loader, epoch);
    size_t i = 0;
    for (const Batch& batch : loader) {
      ASSERT_LT(i, expected.size());
      EXPECT_TRUE(torch::equal(batch.targets[0], expected[i].targets[0]));
      EXPECT_TRUE(torch::equal(batch.inputs[0], expected[i++].inputs[0]));
    }
    EXPECT_EQ(i, 11u);
  }
  EXPECT_FALSE(torch::equal(
      all_batches(loader, 0)[0].targets[0],
      all_batches(loader, 1)[0].targets[0]));
}

INSTANTIATE_TEST_SUITE_P(
    Numbers,
    WorkersTest,
    testing::Values(0, 1, 2, 8),
    [](const auto& info) { return std::to_string(info.param); });

TEST(DataLoader, CountsItsBatches) {
  const auto dataset = std::make_shared<Counting>(103);
  EXPECT_EQ(DataLoader(dataset, {.batch_size = 10}).size(), 11);
  EXPECT_EQ(
      DataLoader(dataset, {.batch_size = 10, .drop_last = true}).size(),
      10);
  EXPECT_EQ(
      DataLoader(dataset, {.batch_size = 200, .drop_last = true}).size(),
      0);
  EXPECT_EQ(
      all_batches(DataLoader(dataset, {.batch_size = 10}), 0).back().size(),
      3);
}

TEST(DataLoader, EndsALoopWithoutBatchesImmediately) {
  DataLoader loader(std::make_shared<Counting>(0));
  for (const Batch& batch : loader) FAIL() << batch.size();
}

TEST(DataLoader, EndsALoopWithTheErrorOfTheDataset) {
  DataLoader loader(
      std::make_shared<Calling>([](c10::ArrayRef<int64_t> indices) {
        if (indices[0] == 20) throw std::out_of_range("no such pixel");
      }),
      {.batch_size = 10, .workers = 2});
  const int64_t before = thread_count();
  int batches = 0;
  const auto loop = [&] {
    for (const Batch& batch : loader) batches += batch.size() == 10;
  };
  expect_error<DataError>(loop, {"sample 20", "no such pixel"});
  EXPECT_EQ(batches, 2);
  EXPECT_EQ(thread_count(), before);
}

TEST(DataLoader, FollowsTheGivenSampler) {
  const DataLoader loader(
      std::make_shared<Counting>(5),
      {.batch_size = 8,
       .sampler = std::make_shared<WeightedSampler>(
           std::vector<double>{0, 0, 1, 0, 0})});
  const auto batches = all_batches(loader, 0);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_TRUE((batches[0].targets[0] == 2).all().item<bool>());
}

TEST(DataLoader, ReusesItsBuffersInSteadyState) {
  const DataLoader loader(
      std::make_shared<Counting>(1000),
      {.batch_size = 10, .workers = 2, .prefetch = 2});
  std::set<const void*> memory;
  auto pass = loader.epoch(0);
  while (auto batch = pass.next()) memory.insert(batch->inputs[0].data_ptr());
  // The prefetched batches, the batches the workers are loading, and the
  // current one.
  EXPECT_LE(memory.size(), 2u * 2 + 2 + 1);
}

TEST(DataLoader, DoesNotOverwriteABatchThatIsStillInUse) {
  const DataLoader loader(
      std::make_shared<Counting>(200),
      {.batch_size = 10, .workers = 2});
  const auto kept = all_batches(loader, 0);
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].targets[0][0].item<int64_t>(), 10 * i);
  }
}

TEST(DataLoader, WorkersAlwaysUseOneThreadAndNoAutocast) {
  std::atomic<int> threads = 0;
  std::atomic<bool> autocast = false;
  const DataLoader loader(
      std::make_shared<Calling>([&](c10::ArrayRef<int64_t>) {
        threads = std::max<int>(threads, at::get_num_threads());
        if (at::autocast::is_autocast_enabled(torch::kCPU)) autocast = true;
      }),
      {.batch_size = 10, .workers = 2});
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  all_batches(loader, 0);
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  EXPECT_EQ(threads, 1);
  EXPECT_FALSE(autocast);
}

TEST(DataLoader, TimesOutOnAStuckSampleAndNamesIt) {
  std::atomic<bool> is_stuck = false, release = false;
  const DataLoader loader(
      std::make_shared<Calling>([&](c10::ArrayRef<int64_t> indices) {
        is_stuck = indices[0] == 30;
        while (is_stuck && !release) std::this_thread::yield();
      }),
      {.batch_size = 10,
       .workers = 1,
       .prefetch = 4,
       .timeout = std::chrono::milliseconds(50)});
  auto pass = loader.epoch(0);
  // Then the batches before it are ready, however busy the machine is.
  while (!is_stuck) std::this_thread::yield();
  for (int i = 0; i < 3; ++i) pass.next();
  try {
    pass.next();
    ADD_FAILURE();
  } catch (const DataError& error) {
    EXPECT_EQ(error.path(), "picture_30.png");
  }
  release = true;
}

TEST(DataLoader, RejectsOptionsOutOfRange) {
  const auto dataset = std::make_shared<Counting>(5);
  EXPECT_THROW(DataLoader(nullptr), c10::ValueError);
  EXPECT_THROW(DataLoader(dataset, {.batch_size = 0}), c10::ValueError);
  EXPECT_THROW(DataLoader(dataset, {.workers = -2}), c10::ValueError);
  EXPECT_THROW(DataLoader(dataset, {.prefetch = 0}), c10::ValueError);
  EXPECT_THROW(DataLoader(dataset).epoch(-1), c10::ValueError);
}

class OddSampler final : public Sampler {
 public:
  explicit OddSampler(std::vector<int64_t> indices)
      : indices_(std::move(indices)) {}
  int64_t size() const override { return 3; }
  std::vector<int64_t> indices(uint64_t, int64_t) const override {
    return indices_;
  }

 private:
  std::vector<int64_t> indices_;
};

// Returns one sample too few in every batch, like a dataset that skips broken
// files.
class Skipping final : public Dataset {
 public:
  int64_t size() const override { return 8; }
  Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext&)
      const override {
    return {{torch::zeros({static_cast<int64_t>(indices.size()) - 1, 1})}, {}};
  }
  std::string describe(int64_t index) const override {
    return "row " + std::to_string(index);
  }
};

TEST(DataLoader, RejectsABatchWithTooFewSamples) {
  for (const int64_t workers : {0, 2}) {
    const DataLoader loader(
        std::make_shared<Skipping>(),
        {.batch_size = 4, .workers = workers});
    expect_error<DataError>(
        [&] { all_batches(loader, 0); },
        {"row 0", "called with 4 indices", "inputs with 3 rows"});
  }
}

TEST(DataLoader, RejectsInvalidIndicesOfASampler) {
  const auto data = std::make_shared<TensorDataset>(
      Tensors{torch::arange(4)},
      Tensors{torch::arange(4)});
  const auto begin = [&](std::vector<int64_t> indices) {
    DataLoader(
        data,
        {.batch_size = 2,
         .sampler = std::make_shared<OddSampler>(std::move(indices)),
         .workers = 0})
        .epoch(0);
  };
  begin({3, 0, 1});
  expect_error<c10::ValueError>([&] { begin({1}); }, {"1 indices", "is 3"});
  expect_error<c10::IndexError>(
      [&] {
        begin({0, 1, 4});
      },
      {"sample 4 of a dataset of 4", "0 to 3"});
}

TEST(DataLoader, InOrderDoesNotAugmentByDefault) {
  struct Asking final : Dataset {
    int64_t size() const override { return 4; }
    Batch get_batch(c10::ArrayRef<int64_t> indices, const BatchContext& context)
        const override {
      const auto n = static_cast<int64_t>(indices.size());
      return {{torch::full({n, 1}, context.training ? 1 : 0)}, {}};
    }
  };
  const DataLoader loader(
      std::make_shared<Asking>(),
      {.batch_size = 4, .training = true, .workers = 0});
  const auto augments = [](const DataLoader& asked) {
    return asked.epoch(0).next()->inputs[0][0].item<int64_t>() == 1;
  };
  EXPECT_TRUE(augments(loader));
  EXPECT_FALSE(augments(loader.in_order()));
  EXPECT_TRUE(augments(loader.in_order(/*augments=*/true)));
}

}  // namespace
}  // namespace tern::data_loader_test
