#include "tern/callbacks/diagnose/max_batch_size.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"
#include "tern/tests/support/weight_bytes.h"

namespace tern::max_batch_size_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

// BatchNorm would need two samples.
torch::nn::Sequential plain_net() {
  return torch::nn::Sequential(torch::nn::Linear(2, 2));
}

// Simulates a device with memory for this many samples.
std::shared_ptr<Callback> room_for(int64_t samples, int64_t* trials = nullptr) {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_backward_begin = [=](Learner& l) {
        if (trials) ++*trials;
        if (l.state().batch_data.size() > samples) {
          throw c10::OutOfMemoryError(
              {__func__, __FILE__, __LINE__},
              "CUDA out of memory. Tried to allocate 2.00 MiB.");
        }
      }});
}

TEST(MaxBatchSize, IsFoundFromAboveAndFromBelow) {
  for (const int64_t room : {1, 2, 17, 100, 255}) {
    for (const int64_t first : {0, 1, 7, 256}) {
      Learner learn(point_data(), plain_net(), quiet());
      learn.add(room_for(room));
      const int64_t found = max_batch_size(learn, {.first = first});
      EXPECT_LE(found, room);
      EXPECT_GE(found, room - std::max<int64_t>(1, room / 20))
          << room << " from " << first;
    }
  }
}

TEST(MaxBatchSize, IsTheWholeDatasetIfItFitsButAtMostTheGivenLimit) {
  int64_t trials = 0;
  Learner learn(point_data(), point_net(), quiet());
  learn.add(room_for(1000, &trials));
  EXPECT_EQ(max_batch_size(learn), 256);
  EXPECT_EQ(trials, 2 * 4) << "32, 64, 128, 256; two steps each";
  EXPECT_EQ(max_batch_size(learn, {.most = 100}), 100);
}

TEST(MaxBatchSize, DoesNotChangeTraining) {
  const auto train = [](bool asks) {
    auto learn = std::make_unique<Learner>(point_data(), point_net(), quiet());
    learn->to_bf16().fit(1);
    if (asks) {
      learn->add(room_for(70));
      EXPECT_GE(max_batch_size(*learn), 66);
      EXPECT_EQ(learn->data().train->options().batch_size, 32);
      EXPECT_EQ(learn->recorder().losses().size(), 8u);
    }
    learn->fit(1);
    return bytes_of(*learn);
  };
  EXPECT_TRUE(train(true) == train(false));
}

TEST(MaxBatchSize, ObservesAMemoryLimitWithoutTryingMuchLargerBatches) {
  int64_t largest = 0;
  const auto wide = [] {
    return torch::nn::Sequential(
        torch::nn::Linear(2, 1 << 14),
        torch::nn::ReLU(),
        torch::nn::Linear(1 << 14, 2));
  };
  Learner learn(point_data(), wide(), quiet());
  learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    largest = std::max(largest, l.state().batch_data.size());
  }});
  // Per sample, the layer's outputs and their gradients take 64 kB each.
  const int64_t limit = 16 << 20;
  const int64_t found =
      max_batch_size(learn, {.first = 8, .memory_limit = limit});
  EXPECT_GE(found, 40);
  EXPECT_LE(found, 128);
  EXPECT_LE(largest, found * 2) << "tried a batch that could not fit";
  const int64_t from_above =
      max_batch_size(learn, {.first = 256, .memory_limit = limit});
  EXPECT_NEAR(from_above, found, std::max<int64_t>(2, found / 10));
}

TEST(MaxBatchSize, PropagatesOtherErrorsAndRejectsInvalidOptions) {
  Learner learn(point_data(), plain_net(), quiet());
  const auto broken = std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_step = [](Learner&) { throw std::runtime_error("a fault"); }});
  learn.add(broken);
  expect_error<std::runtime_error>([&] { max_batch_size(learn); }, {"a fault"});
  EXPECT_EQ(learn.data().train->options().batch_size, 32);
  learn.remove(*broken);
  expect_error<c10::ValueError>(
      [&] { max_batch_size(learn, {.first = -1}); },
      {"first is -1"});
  learn.add(room_for(0));
  expect_error<c10::ValueError>(
      [&] { max_batch_size(learn); },
      {"not even one sample", "cpu"});
}

}  // namespace
}  // namespace tern::max_batch_size_test
