#include "tern/vision/predict/predictor_queue.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tern/data/formats/error.h"
#include "tern/learner/export/export_model.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"
#include "tern/vision/models/cnn/simple_cnn.h"

namespace tern::predictor_queue_test {
namespace {

using namespace std::chrono_literals;
using Futures = std::vector<std::future<Prediction>>;

class PredictorQueueTest : public testing::Test {
 protected:
  PredictorQueueTest() {
    DataBunch data = testing_support::point_data();
    data.classes = {"a", "b"};
    data.preprocessing = ImagePreprocessing{
        .height = 8,
        .width = 8,
        .mean = {0.5, 0.5, 0.5},
        .stddev = {1, 1, 1}};
    Learner learn(data, simple_cnn({3, 4, 2}), testing_support::quiet());
    learn.export_model(temp_ / "a.safetensors");
  }

  Predictor predictor() const {
    return Predictor::load(
        temp_ / "a.safetensors",
        {.device = torch::kCPU, .exact = true});
  }

  static torch::Tensor picture(int64_t seed) {
    auto generator =
        at::detail::createCPUGenerator(static_cast<uint64_t>(seed));
    return torch::randint(256, {8, 8, 3}, generator, torch::kByte);
  }

  TempFolder temp_;
};

TEST_F(PredictorQueueTest, PredictsLikeThePredictorFromManyThreads) {
  const Predictor alone = predictor();
  PredictorQueue queue(alone, {.max_batch = 4, .max_latency = 2ms});
  std::vector<std::thread> threads;
  std::vector<int> wrong(8);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 20; ++i) {
        const torch::Tensor image = picture(static_cast<int64_t>(t) * 100 + i);
        const torch::Tensor expected = alone.predict(image).probabilities;
        const Prediction prediction = queue.submit(image).get();
        wrong[t] +=
            !torch::allclose(prediction.probabilities, expected, 0, 1e-6);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(8));
}

TEST_F(PredictorQueueTest, FillsItsBatchesWithinTheLatency) {
  PredictorQueue queue(predictor(), {.max_batch = 8, .max_latency = 10s});
  Futures futures;
  for (int64_t i = 0; i < 24; ++i) futures.push_back(queue.submit(picture(i)));
  for (auto& future : futures) future.get();
  EXPECT_EQ(queue.batches(), 3);
}

TEST_F(PredictorQueueTest, OneSampleWaitsNoLongerThanTheLatency) {
  constexpr auto kLatency = 20ms;
  PredictorQueue patient(predictor(), {.max_batch = 1000, .max_latency = 1h});
  PredictorQueue queue(
      predictor(),
      {.max_batch = 1000, .max_latency = kLatency});
  auto later = patient.submit(picture(0));
  const testing_support::OwnTime time;
  const auto begin = std::chrono::steady_clock::now();
  queue.submit(picture(1)).get();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kLatency);
  EXPECT_LT(time.seconds(), 5);
  EXPECT_EQ(later.wait_for(0s), std::future_status::timeout);
}

TEST_F(PredictorQueueTest, AnErrorReachesOnlyTheFutureOfItsSample) {
  PredictorQueue queue(predictor(), {.max_batch = 4, .max_latency = 10s});
  Futures futures;
  futures.push_back(queue.submit(temp_ / "none.png"));
  futures.push_back(queue.submit(picture(0)));
  futures.push_back(queue.submit(torch::zeros({5, 8, 8})));  // 5 channels
  futures.push_back(queue.submit(torch::zeros({3, 8, 8})));
  futures.push_back(queue.submit(picture(1)));
  expect_error<IoError>([&] { futures[0].get(); }, {"none.png"});
  EXPECT_THROW(futures[2].get(), c10::Error);
  for (const size_t good : {1, 3, 4}) {
    EXPECT_EQ(futures[good].get().probabilities.numel(), 2) << good;
  }
}

TEST_F(PredictorQueueTest, DestructorCompletesSubmittedSamples) {
  Futures futures;
  {
    PredictorQueue queue(predictor(), {.max_batch = 4, .max_latency = 1h});
    for (int64_t i = 0; i < 10; ++i) {
      futures.push_back(queue.submit(picture(i)));
    }
  }
  for (auto& future : futures) EXPECT_FALSE(future.get().label.empty());
}

TEST_F(PredictorQueueTest, NeverHoldsMoreThanItsCapacity) {
  PredictorQueue queue(
      predictor(),
      {.max_batch = 2, .max_latency = 0ms, .max_waiting = 2});
  Futures futures;
  for (int64_t i = 0; i < 50; ++i) futures.push_back(queue.submit(picture(i)));
  for (auto& future : futures) future.get();
  EXPECT_GE(queue.batches(), 25);
}

TEST_F(PredictorQueueTest, RejectsOptionsOutOfTheirRange) {
  expect_error<c10::ValueError>(
      [&] { PredictorQueue(predictor(), {.max_batch = 0}); },
      {"max_batch is 0"});
}

}  // namespace
}  // namespace tern::predictor_queue_test
