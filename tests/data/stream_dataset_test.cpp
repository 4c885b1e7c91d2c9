#include "tern/data/stream_dataset.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/data/data_loader.h"
#include "tern/data/fingerprint.h"
#include "tern/data/formats/error.h"
#include "tern/data/sampler.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/exact_resume.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::stream_dataset_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
using Numbers = std::vector<int64_t>;

/// Yields 0, 1, ..., length - 1, each as a point on a circle whose target is
/// its side.
class Counting final : public StreamDataset {
 public:
  explicit Counting(int64_t length, int64_t bad = -1)
      : length_(length), bad_(bad) {}

  static Batch point(int64_t number) {
    const auto angle = 2.4f * static_cast<float>(number);
    const torch::Tensor at =
        torch::tensor({{std::cos(angle), std::sin(angle)}});
    return {
        {at},
        {(at.sum(1) > 0).to(torch::kLong),
         torch::full({1}, number, torch::kLong)}};
  }

  std::unique_ptr<Pass> pass(const BatchContext&) const override {
    ++passes;
    return std::make_unique<Count>(*this);
  }

  mutable std::atomic<int64_t> passes = 0, read = 0, skipped = 0;

 private:
  class Count final : public Pass {
   public:
    explicit Count(const Counting& all) : all_(all) {}
    std::optional<Batch> next() override {
      if (next_ == all_.length_) return std::nullopt;
      if (next_ == all_.bad_) throw std::runtime_error("the pipe broke");
      ++all_.read;
      return point(next_++);
    }
    bool skip() override {
      ++all_.skipped;
      return next_ < all_.length_ && ++next_ > 0;
    }

   private:
    const Counting& all_;
    int64_t next_ = 0;
  };

  int64_t length_, bad_;
};

Numbers read(const DataLoader& loader, int64_t first_batch = 0) {
  Numbers all;
  auto pass = loader.epoch(0, first_batch);
  while (const auto batch = pass.next()) {
    const torch::Tensor& numbers = batch->targets.at(1);
    const auto* begin = numbers.const_data_ptr<int64_t>();
    all.insert(all.end(), begin, begin + numbers.numel());
  }
  return all;
}

Numbers numbers_up_to(int64_t count) {
  return SequentialSampler(count).indices(0, 0);
}

TEST(StreamEpochs, YieldTheSameBatchesForAnyNumberOfWorkersAndFromAnyBatch) {
  const auto stream = std::make_shared<Counting>(100);
  const auto epochs = std::make_shared<StreamEpochs>(stream, 50);
  const std::shared_ptr<const Sampler> orders[] = {
      std::make_shared<SequentialSampler>(50),
      std::make_shared<BufferedSampler>(std::vector<int64_t>{50}, 10),
      std::make_shared<RandomSampler>(50)};
  for (const auto& order : orders) {
    const Numbers expected = order->indices(42, 0);
    for (const int64_t workers : {0, 1, 4}) {
      const DataLoader loader(
          epochs,
          {.batch_size = 4, .sampler = order, .workers = workers});
      EXPECT_EQ(read(loader), expected);
      stream->read = stream->skipped = 0;
      EXPECT_EQ(
          read(loader, /*first_batch=*/9),
          Numbers(expected.begin() + 36, expected.end()));
      EXPECT_EQ(stream->read, 14);
      EXPECT_LE(stream->skipped, 36);
    }
  }
}

TEST(StreamEpochs, KeepNoMoreSamplesThanTheBuffer) {
  const auto stream = std::make_shared<Counting>(1000);
  const DataLoader loader(
      std::make_shared<StreamEpochs>(stream, 1000),
      {.batch_size = 4,
       .sampler = std::make_shared<BufferedSampler>(
           std::vector<int64_t>{1000},
           /*buffer=*/20),
       .workers = 0});
  auto pass = loader.epoch(0);
  for (int64_t batch = 1; batch <= 200; ++batch) {
    pass.next();
    EXPECT_LE(stream->read, 4 * batch + 20);
  }
}

TEST(StreamEpochs, RestartWhenAPassEndsEarly) {
  const auto stream = std::make_shared<Counting>(5);
  const DataLoader loader(
      std::make_shared<StreamEpochs>(stream, 12),
      {.batch_size = 4, .training = true, .workers = 2});
  EXPECT_EQ(read(loader), (Numbers{0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}));
  EXPECT_EQ(stream->passes, 3);
  EXPECT_EQ(read(loader, /*first_batch=*/2), (Numbers{3, 4, 0, 1}));
  const DataLoader empty(
      std::make_shared<StreamEpochs>(std::make_shared<Counting>(0), 1),
      {.workers = 0});
  expect_error<DataError>([&] { read(empty); }, {"returned no sample"});
}

// A repeated sample would count twice.
TEST(StreamEpochs, YieldNoSampleTwiceInAnEvaluation) {
  const auto stream = std::make_shared<Counting>(5);
  const auto epochs = std::make_shared<StreamEpochs>(stream, 12);
  const std::shared_ptr<const Sampler> orders[] = {
      std::make_shared<SequentialSampler>(12),
      std::make_shared<BufferedSampler>(std::vector<int64_t>{12}, 3),
      std::make_shared<RandomSampler>(12)};
  for (const auto& order : orders) {
    Numbers expected = order->indices(42, 0);
    std::erase_if(expected, [](int64_t index) { return index >= 5; });
    for (const int64_t workers : {0, 2}) {
      const DataLoader loader(
          epochs,
          {.batch_size = 2, .sampler = order, .workers = workers});
      Numbers given;
      auto pass = loader.epoch(0);
      while (const auto batch = pass.next()) {
        given.insert(given.end(), batch->indices.begin(), batch->indices.end());
        if (batch->size() == 0) continue;
        EXPECT_TRUE(torch::equal(
            batch->targets.at(1),
            torch::tensor(batch->indices, torch::kLong)));
      }
      EXPECT_EQ(given, expected);
    }
  }
  // Also next to other sources, and in the middle of a batch.
  const auto more = std::make_shared<Counting>(4);
  const DataLoader joined(
      std::make_shared<Concat>(std::vector<std::shared_ptr<const Dataset>>{
          epochs,
          std::make_shared<StreamEpochs>(more, 4)}),
      {.batch_size = 16, .workers = 0});
  EXPECT_EQ(read(joined), (Numbers{0, 1, 2, 3, 4, 0, 1, 2, 3}));

  const auto valid = [&](int64_t samples) {
    const auto sides = [](const Batch& point, const BatchContext&, SampleRng) {
      return Batch{point.inputs, {point.targets[0]}};
    };
    return std::make_shared<DataLoader>(
        std::make_shared<StreamEpochs>(stream, samples, sides),
        DataLoaderOptions{.batch_size = 2, .workers = 0});
  };
  DataBunch data = point_data();
  data.valid = valid(12);
  Learner learn(data, plain_net(), quiet());
  const double loss = learn.validate().loss;
  EXPECT_EQ(learn.get_preds().indices, numbers_up_to(5));
  learn.data().valid = valid(5);
  EXPECT_EQ(learn.validate().loss, loss);
}

TEST(StreamEpochs, ReadEachSampleOnOneRank) {
  const auto stream = std::make_shared<Counting>(24);
  Numbers all;
  for (const int64_t rank : {0, 1, 2}) {
    const DataLoader loader(
        std::make_shared<StreamEpochs>(stream, 24),
        {.batch_size = 4,
         .sampler = std::make_shared<ShardedSampler>(
             std::make_shared<SequentialSampler>(24),
             ShardOptions{.rank = rank, .world_size = 3, .batch_size = 4}),
         .workers = 2});
    const Numbers mine = read(loader);
    EXPECT_EQ(mine.size(), 8u);
    EXPECT_EQ(mine.front(), 4 * rank);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, numbers_up_to(24));
  EXPECT_EQ(stream->read, 24);
}

TEST(StreamEpochs, DecodeWithTheRandomNumbersOfTheSample) {
  const auto decode =
      [](const Batch& sample, const BatchContext& context, SampleRng rng) {
        EXPECT_TRUE(context.training);
        return Batch{{torch::full({1, 1}, rng.uniform())}, {sample.targets}};
      };
  const auto epochs = std::make_shared<StreamEpochs>(
      std::make_shared<Counting>(10),
      10,
      decode);
  const auto draw = [&](int64_t workers) {
    const DataLoader loader(
        epochs,
        {.batch_size = 5, .training = true, .workers = workers});
    auto pass = loader.epoch(3);
    return torch::cat({pass.next()->inputs[0], pass.next()->inputs[0]});
  };
  const torch::Tensor drawn = draw(0);
  EXPECT_EQ(drawn[7].item<float>(), SampleRng(42, 3, 7).uniform());
  EXPECT_TRUE(torch::equal(drawn, draw(3)));
}

// Each epoch reads the stream once, however it is wrapped.
TEST(StreamEpochs, AreReadOnceWithinOtherDatasets) {
  using Sources = std::vector<std::shared_ptr<const Dataset>>;
  for (const int64_t workers : {0, 2}) {
    const auto stream = std::make_shared<Counting>(100);
    const auto epochs = std::make_shared<StreamEpochs>(stream, 30);
    const auto part =
        std::make_shared<Subset>(epochs, Numbers{29, 3, 4, 17, 3, 0});
    const auto other = std::make_shared<Counting>(100);
    const auto all = std::make_shared<Concat>(
        Sources{part, std::make_shared<StreamEpochs>(other, 5)});
    const DataLoader loader(all, {.batch_size = 2, .workers = workers});
    EXPECT_EQ(read(loader), (Numbers{29, 3, 4, 17, 3, 0, 0, 1, 2, 3, 4}));
    EXPECT_EQ(stream->passes, 1);
    EXPECT_EQ(stream->read, 5);
    EXPECT_EQ(stream->skipped, 25);
    EXPECT_EQ(other->passes, 1);
    EXPECT_EQ(other->read, 5);
  }
}

// The stream has already released its samples when the other source fails.
TEST(StreamEpochs, AreNotBlamedForErrorsOfOtherSources) {
  class Broken final : public Dataset {
   public:
    int64_t size() const override { return 4; }
    Batch get_batch(c10::ArrayRef<int64_t> /*indices*/, const BatchContext&)
        const override {
      throw DataError("broken.png", "is no image");
    }
  };
  const DataLoader loader(
      std::make_shared<Concat>(std::vector<std::shared_ptr<const Dataset>>{
          std::make_shared<StreamEpochs>(std::make_shared<Counting>(10), 2),
          std::make_shared<Broken>()}),
      {.batch_size = 4, .workers = 0});
  auto pass = loader.epoch(0);
  expect_error<DataError>(
      [&] { pass.next(); },
      {"broken.png", "is no image", "sample 2"});

  // A shape mismatch is reported first.
  const DataLoader unlike(
      std::make_shared<Concat>(std::vector<std::shared_ptr<const Dataset>>{
          std::make_shared<StreamEpochs>(std::make_shared<Counting>(10), 2),
          std::make_shared<TensorDataset>(
              Tensors{torch::zeros({2, 5})},
              Tensors{torch::zeros({2}), torch::zeros({2})})}),
      {.batch_size = 4, .workers = 0});
  auto other = unlike.epoch(0);
  expect_error<DataError>(
      [&] { other.next(); },
      {"[collate] a sample is", "a batch of 4 samples"});
}

TEST(StreamEpochs, NameTheSampleThatCannotBeReadOrDecoded) {
  const auto expect = [](const std::shared_ptr<const StreamDataset>& stream,
                         const StreamEpochs::Decode& decode,
                         const char* message) {
    for (const int64_t workers : {0, 2}) {
      const DataLoader loader(
          std::make_shared<StreamEpochs>(stream, 20, decode),
          {.batch_size = 4, .workers = workers});
      auto pass = loader.epoch(0);
      EXPECT_TRUE(pass.next());
      expect_error<DataError>([&] { pass.next(); }, {message, "sample 6"});
      EXPECT_FALSE(pass.next());
    }
  };
  expect(std::make_shared<Counting>(20, /*bad=*/6), nullptr, "the pipe broke");
  expect(
      std::make_shared<Counting>(20),
      [](const Batch& sample, const BatchContext&, SampleRng) {
        if (sample.targets.at(1).item<int64_t>() == 6) {
          throw std::runtime_error("no six");
        }
        return sample;
      },
      "no six");
}

TEST(StreamEpochs, RejectAnEmptyEpochAndASampleThatIsABatch) {
  expect_error<c10::ValueError>(
      [] { StreamEpochs(nullptr, 5); },
      {"no stream", "expected a stream"});
  expect_error<c10::ValueError>(
      [] { StreamEpochs(std::make_shared<Counting>(3), 0); },
      {"an epoch of 0 samples"});

  class Pairs final : public StreamDataset {
    class Pair final : public Pass {
      std::optional<Batch> next() override {
        return Batch{{torch::zeros({2, 3})}, {}};
      }
    };
    std::unique_ptr<Pass> pass(const BatchContext&) const override {
      return std::make_unique<Pair>();
    }
  };
  const DataLoader loader(
      std::make_shared<StreamEpochs>(std::make_shared<Pairs>(), 4),
      {.workers = 0});
  expect_error<DataError>(
      [&] { loader.epoch(0).next(); },
      {"a batch of 2", "N = 1"});
}

TEST(StreamEpochs, HaveAFingerprintThatConsumesNoSample) {
  const auto stream = std::make_shared<Counting>(100);
  const std::string print = fingerprint(StreamEpochs(stream, 50));
  EXPECT_EQ(print, fingerprint(StreamEpochs(stream, 50)));
  EXPECT_NE(print, fingerprint(StreamEpochs(stream, 51)));
  EXPECT_EQ(stream->passes, 0);
}

DataBunch stream_data(const std::shared_ptr<const Dataset>& dataset) {
  DataBunch data;
  data.train = std::make_shared<DataLoader>(
      dataset,
      DataLoaderOptions{
          .batch_size = 8,
          .training = true,
          .sampler = std::make_shared<BufferedSampler>(
              std::vector<int64_t>{100},
              /*buffer=*/12),
          .workers = 2});
  data.valid = std::make_shared<DataLoader>(
      dataset,
      DataLoaderOptions{.batch_size = 8, .workers = 1});
  data.device = torch::kCPU;
  return data;
}

Batch without_number(const Batch& sample, const BatchContext&, SampleRng) {
  return {sample.inputs, {sample.targets[0]}};
}

TEST(StreamEpochs, TrainBitIdenticallyToTheSameDataInMemory) {
  std::vector<Batch> points;
  for (int64_t i = 0; i < 100; ++i) points.push_back(Counting::point(i));
  const Batch all = collate(points);
  Learner in_memory(
      stream_data(
          std::make_shared<TensorDataset>(all.inputs, Tensors{all.targets[0]})),
      point_net(),
      quiet());
  Learner streamed(
      stream_data(std::make_shared<StreamEpochs>(
          std::make_shared<Counting>(500),
          100,
          without_number)),
      point_net(),
      quiet());
  for (Learner* learn : {&in_memory, &streamed}) learn->fit(3, 1e-2);
  EXPECT_EQ(streamed.state().iteration, 39);
  EXPECT_TRUE(bytes_of(streamed) == bytes_of(in_memory));
}

TEST(StreamEpochs, ResumeBitIdenticallyInMidEpochOnAllRanks) {
  const TempFolder folder;
  const auto make = [] {
    auto learn = std::make_unique<Learner>(
        stream_data(std::make_shared<StreamEpochs>(
            std::make_shared<Counting>(70),
            100,
            without_number)),
        point_net(),
        quiet());
    learn->to_distributed({.group = {.timeout = std::chrono::seconds(30)}});
    return learn;
  };
  expect_exact_resume_on_ranks(folder, make);
}

/// A message queue: every pass continues where the last one stopped.
class Queue final : public StreamDataset {
 public:
  explicit Queue(int64_t length) : left_(std::make_shared<Left>(length)) {}
  bool can_restart() const override { return false; }
  std::unique_ptr<Pass> pass(const BatchContext&) const override {
    return std::make_unique<Take>(left_);
  }
  int64_t left() const { return *left_; }

 private:
  using Left = std::atomic<int64_t>;

  class Take final : public Pass {
   public:
    explicit Take(std::shared_ptr<Left> left) : left_(std::move(left)) {}
    std::optional<Batch> next() override {
      const int64_t left = left_->fetch_sub(1);
      return left > 0 ? std::optional(Counting::point(left)) : std::nullopt;
    }

   private:
    std::shared_ptr<Left> left_;
  };

  std::shared_ptr<Left> left_;
};

std::shared_ptr<StreamEpochs> queued(int64_t length, int64_t samples) {
  return std::make_shared<StreamEpochs>(
      std::make_shared<Queue>(length),
      samples,
      without_number);
}

std::vector<int64_t>
training_batch_sizes(int64_t length, bool drop_last, int64_t workers) {
  const DataLoader loader(
      queued(length, 40),
      {.batch_size = 4,
       .drop_last = drop_last,
       .training = true,
       .workers = workers});
  std::vector<int64_t> sizes;
  DataLoader::Epoch batches = loader.epoch(0);
  while (const auto batch = batches.next()) {
    EXPECT_TRUE(batch->left_out.empty());
    EXPECT_EQ(std::ssize(batch->indices), batch->size());
    sizes.push_back(batch->size());
  }
  EXPECT_EQ(batches.has_ended_early(), length < 40);
  return sizes;
}

TEST(StreamEpochs, EndTogetherWithAStreamThatCannotRestart) {
  using Sizes = std::vector<int64_t>;
  for (const int64_t workers : {0, 1, 3}) {
    EXPECT_EQ(training_batch_sizes(10, false, workers), (Sizes{4, 4, 2}));
    EXPECT_EQ(training_batch_sizes(10, true, workers), (Sizes{4, 4}));
    EXPECT_EQ(training_batch_sizes(8, false, workers), (Sizes{4, 4}));
    EXPECT_EQ(training_batch_sizes(0, false, workers), Sizes{});
    EXPECT_EQ(training_batch_sizes(40, false, workers), Sizes(10, 4));
  }
}

TEST(StreamEpochs, ThatCannotRestartContinueWithNewSamplesAfterAResume) {
  const DataLoader loader(
      queued(8, 40),
      {.batch_size = 4, .training = true, .workers = 1});
  DataLoader::Epoch batches = loader.epoch(0, /*first_batch=*/3);
  EXPECT_EQ(batches.next()->size(), 4);
  EXPECT_EQ(batches.next()->size(), 4);
  EXPECT_FALSE(batches.next());
}

TEST(StreamEpochs, ThatCannotRestartCannotBeShuffled) {
  const auto valid = std::make_shared<StreamEpochs>(
      std::make_shared<Counting>(500),
      100,
      without_number);
  const DataBunch shuffled =
      DataBunch::create(queued(100, 100), valid, {.batch_size = 8});
  expect_error<c10::ValueError>(
      [&] { shuffled.train->epoch(0); },
      {"the sampler shuffles", "SequentialSampler"});
  const DataBunch ordered = DataBunch::create(
      queued(100, 100),
      valid,
      {.batch_size = 8, .sampler = std::make_shared<SequentialSampler>(100)});
  EXPECT_EQ(ordered.train->epoch(0).next()->size(), 8);
}

/// Counts of a fit of 5 epochs: steps, epochs with a validation, and all
/// epochs.
struct FitOfQueue {
  int64_t steps = 0, validated = 0, epochs = 0;
  FitResult result = FitResult::failed;
  double valid_loss = 0;  // after the fit
  int64_t rows = 0;       // rows of the table
};

FitOfQueue fit_queue(int64_t length, bool drop_last, Callbacks callbacks = {}) {
  DataBunch data = stream_data(std::make_shared<StreamEpochs>(
      std::make_shared<Counting>(500),
      100,
      without_number));
  data.train = std::make_shared<DataLoader>(
      queued(length, 24),
      DataLoaderOptions{
          .batch_size = 8,
          .drop_last = drop_last,
          .training = true,
          .workers = 2});
  FitOfQueue seen;
  Learner learn(std::move(data), point_net(), quiet());
  callbacks.push_back(std::make_shared<LambdaCallback>(LambdaCallback::Options{
      .on_batch_end =
          [&](Learner& l) {
            seen.steps += l.state().training && !l.state().skip_step;
          },
      .on_epoch_end =
          [&](Learner& l) {
            ++seen.epochs;
            seen.validated += !std::isnan(l.state().valid_loss);
          }}));
  learn.fit(5, 1e-2, callbacks);
  seen.result = learn.state().result;
  seen.valid_loss = learn.state().valid_loss;
  seen.rows = std::ssize(learn.recorder().epochs());
  return seen;
}

TEST(StreamEpochs, EndAFitWhenTheStreamEnds) {
  // The stream ends in the middle of the second epoch.
  FitOfQueue seen = fit_queue(36, /*drop_last=*/false);
  EXPECT_EQ(seen.steps, 5);
  EXPECT_EQ(seen.epochs, 2);
  EXPECT_EQ(seen.validated, 2);
  EXPECT_EQ(seen.result, FitResult::completed);
  EXPECT_EQ(fit_queue(36, /*drop_last=*/true).steps, 4);
  // The stream ends with the second epoch, so there is no third epoch.
  seen = fit_queue(48, /*drop_last=*/false);
  EXPECT_EQ(seen.steps, 6);
  EXPECT_EQ(seen.epochs, 2);
  EXPECT_EQ(seen.validated, 2);
  EXPECT_FALSE(std::isnan(seen.valid_loss));
  EXPECT_EQ(seen.rows, 2);
  EXPECT_EQ(seen.result, FitResult::completed);
  // The stream ends after all five epochs.
  EXPECT_EQ(fit_queue(200, /*drop_last=*/false).epochs, 5);
}

// The window is four batches: the last batch, of 4 samples, must complete the
// step.
TEST(StreamEpochs, CompleteAnAccumulatedStepWhenTheStreamEnds) {
  const auto accumulation = std::make_shared<GradientAccumulation>(
      GradientAccumulation::Options{.batches = 4});
  EXPECT_EQ(fit_queue(12, false, {accumulation}).steps, 1);
}

TEST(StreamEpochs, CanEndEarlyWithinSubsetsAndConcats) {
  const auto queue = std::make_shared<Queue>(12);
  const auto stream = std::make_shared<StreamEpochs>(queue, 40, without_number);
  std::vector<int64_t> all(40);
  std::iota(all.begin(), all.end(), 0);
  const auto part = std::make_shared<Subset>(stream, all);
  const Concat wrapped({part});
  EXPECT_TRUE(wrapped.can_end_early());
  fingerprint(wrapped);  // reads nothing
  const DataLoader loader(
      std::make_shared<Concat>(wrapped),
      {.batch_size = 8, .training = true, .workers = 1});
  DataLoader::Epoch batches = loader.epoch(0);
  EXPECT_EQ(batches.next()->size(), 8);
  EXPECT_FALSE(batches.has_ended_early());
  EXPECT_EQ(batches.next()->size(), 4);
  EXPECT_TRUE(batches.has_ended_early());
  EXPECT_FALSE(batches.next());
  // Only in order, and with nothing after the stream that would be lost.
  std::reverse(all.begin(), all.end());
  const DataLoader shuffled(
      std::make_shared<Subset>(stream, all),
      {.batch_size = 8, .training = true, .workers = 1});
  expect_error<c10::ValueError>(
      [&] { shuffled.epoch(0); },
      {"StreamEpochs", "increasing indices"});
  const DataLoader followed(
      std::make_shared<Concat>(
          std::vector<std::shared_ptr<const Dataset>>{stream, part}),
      {.batch_size = 8, .training = true, .workers = 1});
  expect_error<c10::ValueError>(
      [&] { followed.epoch(0); },
      {"Concat", "dataset 1 of 2", "Put it last"});
}

// A stream may wait until training has used its last batch.
TEST(StreamEpochs, YieldEachBatchAsSoonAsItIsComplete) {
  const auto queue = std::make_shared<Queue>(8);
  const DataLoader loader(
      std::make_shared<StreamEpochs>(queue, 40, without_number),
      {.batch_size = 8, .training = true, .workers = 0});
  DataLoader::Epoch batches = loader.epoch(0);
  EXPECT_EQ(batches.next()->size(), 8);
  EXPECT_EQ(queue->left(), 0);  // no ninth sample was requested
}

TEST(StreamEpochs, YieldTheBatchesBeforeAnError) {
  for (const int64_t workers : {0, 2}) {
    const DataLoader loader(
        std::make_shared<StreamEpochs>(
            std::make_shared<Queue>(100),
            40,
            [](const Batch& sample,
               const BatchContext& context,
               SampleRng rng) {
              TORCH_CHECK_VALUE(
                  sample.targets[1].item<int64_t>() != 80,
                  "the frame is torn");
              return without_number(sample, context, rng);
            }),
        {.batch_size = 8, .training = true, .workers = workers});
    DataLoader::Epoch batches = loader.epoch(0);
    EXPECT_EQ(batches.next()->size(), 8);
    EXPECT_EQ(batches.next()->size(), 8);
    expect_error<DataError>([&] { batches.next(); }, {"the frame is torn"});
    EXPECT_FALSE(batches.next());
  }
}

TEST(StreamEpochs, ReportThatAStreamHasAlreadyEnded) {
  expect_error<c10::ValueError>(
      [] { fit_queue(0, false); },
      {"ended before the first batch", "at least one of 8 samples"});
  expect_error<c10::ValueError>([] { fit_queue(5, true); }, {"ended before"});
}

}  // namespace
}  // namespace tern::stream_dataset_test
