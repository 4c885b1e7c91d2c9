#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/types.h>

#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::torch_scheduler_test {
namespace {

using namespace testing_support;  // NOLINT

// Halves the learning rate after every `size` advances.
std::shared_ptr<TorchScheduler> halving(unsigned size, bool per_batch) {
  return std::make_shared<TorchScheduler>(
      [size](torch::optim::Optimizer& optimizer) {
        return std::make_unique<torch::optim::StepLR>(optimizer, size, 0.5);
      },
      TorchScheduler::Options{.per_batch = per_batch});
}

TEST(TorchScheduler, AdvancesAfterEachEpoch) {
  Learner learn(point_data(), point_net(), quiet());
  learn.fit(3, 0.8, {halving(1, false)});
  const auto& rates = learn.recorder().learning_rates();
  EXPECT_EQ(rates[7], 0.8);
  EXPECT_EQ(rates[8], 0.4);
  EXPECT_EQ(rates[23], 0.2);
}

TEST(TorchScheduler, AdvancesAfterEachBatchAndRestartsWithEachFit) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add(halving(2, true));
  const std::vector<double> expected = {1, 1, .5, .5, .25, .25, .125, .125};
  for (int fit = 0; fit < 2; ++fit) {
    learn.fit(1, 1.0);
    const auto& rates = learn.recorder().learning_rates();
    EXPECT_EQ(std::vector<double>(rates.end() - 8, rates.end()), expected);
  }
}

TEST(TorchScheduler, KeepsTheRatiosOfLayerGroups) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"3"}).add(halving(1, false));
  std::vector<double> rates;
  learn.add<LambdaCallback>(
      {.on_epoch_begin = [&](Learner& l) { rates = l.learning_rates(); }});
  learn.fit(2, LearningRates::per_group({0.1, 1}));
  EXPECT_EQ(rates, (std::vector<double>{0.05, 0.5}));
}

TEST(TorchScheduler, DoesNotAdvanceOnASkippedStep) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_fp16({.force_fp16 = true});
  learn.add(halving(1, true)).add(overflow_at({1, 2})).fit(1, 0.8);
  const auto& rates = learn.recorder().learning_rates();
  EXPECT_EQ(
      (std::vector<double>{rates.begin(), rates.begin() + 5}),
      (std::vector<double>{0.8, 0.4, 0.4, 0.4, 0.2}));
}

TEST(TorchScheduler, ContinuesBitIdenticallyAfterAResume) {
  const TempFolder temp;
  const auto make = [&](Learner& learn) { learn.add(halving(3, true)); };
  Learner learn(point_data(), point_net(), quiet());
  make(learn);
  learn.add<LambdaCallback>(
      {.on_batch_end =
           [&](Learner& l) {
             if (l.state().iteration == 5) l.save_checkpoint(temp / "run");
           },
       .order = callback_order::kLast});
  learn.fit(2, 0.3);
  Learner continued(point_data(), point_net(3), quiet());
  make(continued);
  continued.add<LambdaCallback>(
      {.on_batch_end = [](Learner&) {}, .order = callback_order::kLast});
  continued.resume(temp / "run").fit(2, 0.3);
  EXPECT_EQ(
      continued.recorder().learning_rates(),
      learn.recorder().learning_rates());
  EXPECT_TRUE(all_equal(parameters_of(continued), parameters_of(learn)));
}

// A scheduler that a callback adds in on_epoch_begin begins with the initial
// learning rates, and after a resume gets the checkpoint's learning rates.
TEST(Schedulers, ThatAreAddedInAFitResumeExactly) {
  const auto factor = [] {
    return std::make_shared<ParamScheduler>(
        std::vector<ParamScheduler::Scheduled>{
            {HyperParameter::lr,
             {schedule::linear(1, 0.1)},
             /*is_factor=*/true}});
  };
  using Make = std::function<CallbackHandle()>;
  for (const Make& make :
       {Make([] { return halving(3, true); }), Make(factor)}) {
    const TempFolder temp;
    const auto learner = [&] {
      auto learn =
          std::make_unique<Learner>(point_data(), point_net(), quiet());
      learn->add<LambdaCallback>({.on_epoch_begin = [&make](Learner& l) {
        if (l.state().epoch == 0) l.add(make());
      }});
      learn->add<LambdaCallback>(
          {.on_batch_end =
               [&temp](Learner& l) {
                 if (l.state().iteration == 5) l.save_checkpoint(temp / "run");
               },
           .order = callback_order::kLast});
      return learn;
    };
    const auto whole = learner();
    whole->fit(2, 0.3);
    const auto resumed = learner();
    resumed->resume(temp / "run").fit(2, 0.3);
    EXPECT_EQ(
        resumed->recorder().learning_rates(),
        whole->recorder().learning_rates());
    EXPECT_TRUE(all_equal(parameters_of(*resumed), parameters_of(*whole)));
  }
}

TEST(TorchScheduler, IsNotAdvancedByADryRun) {
  Learner learn(point_data(), point_net(), quiet());
  dry_run(learn.add(halving(1, true)));
  learn.fit(1, 0.8);
  EXPECT_EQ(learn.recorder().learning_rates()[0], 0.8);
}

TEST(TorchScheduler, RejectsASecondLearningRateSchedule) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add(halving(1, true));
  expect_error<c10::ValueError>(
      [&] { learn.fit_one_cycle(1); },
      {"TorchScheduler", "both set the learning rate"});
  expect_error<c10::ValueError>(
      [] { TorchScheduler(nullptr); },
      {"factory is empty"});
  Learner other(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] {
        other.fit(1, {}, {std::make_shared<TorchScheduler>([](auto&) {
                    return std::unique_ptr<torch::optim::LRScheduler>();
                  })});
      },
      {"returned no scheduler"});
}

}  // namespace
}  // namespace tern::torch_scheduler_test
