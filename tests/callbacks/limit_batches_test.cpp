#include "tern/callbacks/limit_batches.h"

#include <set>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/monitor.h"
#include "tern/callbacks/schedules/one_cycle.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::limit_batches_test {
namespace {

using namespace testing_support;  // NOLINT

struct Counts {
  int64_t train = 0, valid = 0;
  std::vector<torch::Tensor> train_inputs, valid_inputs;
};

std::shared_ptr<Callback> count(Counts& counts) {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_batch_begin = [&counts](Learner& l) {
        const bool training = l.state().training;
        (training ? counts.train : counts.valid) += 1;
        (training ? counts.train_inputs : counts.valid_inputs)
            .push_back(l.state().batch_data.inputs[0].clone());
      }});
}

TEST(LimitBatches, ShortensEachEpochAndRestoresTheLoaders) {
  Learner learn(point_data(), point_net(), quiet());
  Counts counts;
  learn.add<LimitBatches>({.train = 3, .valid = 1}).add(count(counts));
  learn.fit(2).fit(1);
  EXPECT_EQ(counts.train, 9);
  EXPECT_EQ(counts.valid, 3);
  EXPECT_FALSE(torch::equal(counts.train_inputs[0], counts.train_inputs[3]));
  EXPECT_EQ(learn.data().train->size(), 8);
  EXPECT_EQ(learn.data().valid->size(), 4);
}

TEST(LimitBatches, ShortensSchedulesToo) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LimitBatches>({.train = 4}).fit_one_cycle(2, 1.0);
  const auto& lrs = learn.recorder().learning_rates();
  ASSERT_EQ(lrs.size(), 8u);
  EXPECT_DOUBLE_EQ(lrs[2], 1.0);  // a quarter of the schedule
}

TEST(LimitBatches, RestoresTheLoadersAfterAnException) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<LimitBatches>({.train = 3})
      .add<LambdaCallback>(
          {.on_step = [](Learner&) { throw std::runtime_error("stop"); }});
  EXPECT_THROW(learn.fit(1), std::runtime_error);
  EXPECT_EQ(learn.data().train->size(), 8);
}

TEST(OverfitBatches, TrainsAndValidatesOnTheSameSamples) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  Counts counts;
  learn.add<OverfitBatches>(2).add(count(counts)).fit(30, 0.03).fit(1);
  EXPECT_EQ(counts.train, 62);
  EXPECT_EQ(counts.valid, 62);
  for (size_t i = 0; i < 62; ++i) {
    EXPECT_TRUE(
        torch::equal(counts.train_inputs[i], counts.train_inputs[i % 2]));
    EXPECT_TRUE(torch::equal(counts.train_inputs[i], counts.valid_inputs[i]));
  }
  EXPECT_GT(learn.recorder().epochs().back().metrics[0].value, 0.98);
  EXPECT_EQ(learn.data().train->size(), 8);
}

TEST(StopAfterNBatches, EndsTheFitWithoutValidation) {
  Learner learn(point_data(), point_net(), quiet());
  Counts counts;
  learn.add<StopAfterNBatches>(10).add(count(counts)).fit(3);
  EXPECT_EQ(counts.train, 10);
  EXPECT_EQ(counts.valid, 4);  // validation of the first epoch only
  learn.fit(3);
  EXPECT_EQ(counts.train, 20);
}

TEST(StopAfterNBatches, AnnouncesTheStopInTheLastBatch) {
  Learner learn(point_data(), point_net(), quiet());
  std::vector<bool> is_last;
  learn.add<StopAfterNBatches>(3)
      .add<LambdaCallback>(
          {.on_backward_begin =
               [&](Learner& l) { is_last.push_back(l.state().stop_training); }})
      .fit(1);
  EXPECT_EQ(is_last, (std::vector<bool>{false, false, true}));
}

TEST(DryRun, DoesNotChangeTraining) {
  const auto train = [](bool dry) {
    Learner learn(point_data(), point_net(), quiet());
    learn.add<EarlyStopping>();
    if (dry) dry_run(learn, 2);
    learn.fit(1);
    if (dry) dry_run(learn);
    learn.fit(1);
    EXPECT_EQ(learn.recorder().losses().size(), 16u);
    EXPECT_EQ(learn.data().train->size(), 8);
    return parameters_of(learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(DryRun, TrainsAndValidatesOnFewBatches) {
  Learner learn(point_data(), point_net(), quiet());
  Counts counts;
  dry_run(learn.add(count(counts)), 2);
  EXPECT_EQ(counts.train, 2);
  EXPECT_EQ(counts.valid, 2);
}

TEST(DryRun, FindsErrorsInTheValidationData) {
  DataBunch data = point_data();
  data.valid = std::make_shared<DataLoader>(std::make_shared<TensorDataset>(
      Tensors{torch::zeros({40, 3})},
      Tensors{torch::zeros({40}, torch::kLong)}));
  Learner learn(data, point_net(), quiet());
  expect_error<c10::ValueError>([&] { dry_run(learn); }, {"[40, 3]"});
  EXPECT_EQ(learn.data().valid, data.valid);
}

TEST(LimitBatches, RejectsNumbersOutOfRange) {
  expect_error<c10::ValueError>(
      [] { LimitBatches callback({.train = -1}); },
      {"train is -1"});
  expect_error<c10::ValueError>(
      [] { OverfitBatches callback(0); },
      {"[OverfitBatches] batches is 0"});
  expect_error<c10::ValueError>(
      [] { StopAfterNBatches callback(0); },
      {"[StopAfterNBatches] batches is 0"});
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>([&] { dry_run(learn, 0); }, {"batches is 0"});
  learn.add<OverfitBatches>();
  expect_error<c10::ValueError>(
      [&] { learn.add<LimitBatches>({.train = 1}); },
      {"OverfitBatches and LimitBatches would both change the loaders"});
}

}  // namespace
}  // namespace tern::limit_batches_test
