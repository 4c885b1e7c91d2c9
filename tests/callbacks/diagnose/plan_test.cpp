#include "tern/callbacks/diagnose/plan.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::plan_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(Plan, DescribesTheTrainingRun) {
  Learner learn(point_data(), point_net(), quiet({.bn_weight_decay = false}));
  learn.split({"3"}).freeze();
  const TrainingPlan plan =
      learn.plan({.epochs = 3, .lr = {1e-4, 1e-2}, .batches = 4});
  EXPECT_EQ(plan.device, "cpu");
  EXPECT_EQ(plan.precision, "fp32");
  EXPECT_NE(plan.optimizer.find("AdamW"), std::string::npos);
  EXPECT_EQ(plan.batches, 8);
  EXPECT_EQ(plan.batch_size, 32);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].parameters, 48 + 32);
  EXPECT_EQ(plan.groups[0].trainable, 32);  // BatchNorm
  EXPECT_EQ(plan.groups[0].lr, 1e-4);
  EXPECT_EQ(plan.groups[1].lr, 1e-2);
  EXPECT_EQ(plan.groups[0].without_decay, 16 + 32);  // bias and BatchNorm
  EXPECT_EQ(plan.gradient_bytes, 4 * (32 + 34));
  EXPECT_GE(plan.weight_bytes, 4 * 114);
  EXPECT_GT(plan.step_bytes, 0);
  EXPECT_GT(plan.step_milliseconds, 0);
  EXPECT_NEAR(
      plan.step_milliseconds,
      std::accumulate(plan.milliseconds.begin(), plan.milliseconds.end(), 0.0),
      1e-9);
  const std::string text = plan.to_string();
  for (const char* word :
       {"3 epochs of 8 batches of 32",
        "for each training batch",
        "forward",
        "about",
        "memory",
        "without weight decay"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << " in\n" << text;
  }
}

TEST(Plan, LeavesTrainingBitIdentical) {
  const auto make = [] {
    auto learn = std::make_unique<Learner>(
        point_data(),
        point_net(),
        quiet({.seed = 1}));
    learn->add<Ema>();
    return learn;
  };
  const auto plain = make(), planned = make();
  planned->plan();
  plain->fit(1);
  planned->fit(1);
  EXPECT_TRUE(all_equal(parameters_of(*plain), parameters_of(*planned)));
  planned->plan();  // now the optimizer has state
  plain->fit(2);
  torch::manual_seed(9);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(9);
  planned->plan();
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
  planned->fit(2);
  EXPECT_TRUE(all_equal(parameters_of(*plain), parameters_of(*planned)));
  EXPECT_EQ(plain->recorder().losses(), planned->recorder().losses());
  EXPECT_EQ(plain->state().iteration, planned->state().iteration);
}

TEST(Plan, IsUndoneAfterAnException) {
  Learner learn(point_data(), point_net(), quiet());
  const Tensors before = parameters_of(learn);
  learn.add<LambdaCallback>({.on_step_end = [](Learner& l) {
    if (l.state().is_dry_run && l.state().batch == 3) {
      throw std::runtime_error("stop");
    }
  }});
  EXPECT_THROW(learn.plan(), std::runtime_error);
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  learn.fit(1);
}

TEST(Plan, WritesOneWorkerInTheSingular) {
  TrainingPlan plan;
  plan.workers = 1;
  EXPECT_NE(plan.to_string().find(" with 1 worker\n"), std::string::npos);
  plan.workers = 2;
  EXPECT_NE(plan.to_string().find(" with 2 workers\n"), std::string::npos);
}

TEST(Plan, PrintsNothing) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  learn.plan();
  EXPECT_TRUE(sink->lines.empty());
  EXPECT_TRUE(sink->warnings.empty());
}

TEST(Plan, ReportsASlowLoaderAndMissingData) {
  // Slower than training on any machine, however busy; without workers, which
  // could get ahead of a test that is starved of CPU time.
  using Clock = std::chrono::steady_clock;
  struct SlowData final : Dataset {
    std::atomic<Clock::duration> longest_step = Clock::duration(0);
    int64_t size() const override { return 36; }
    Batch get_batch(c10::ArrayRef<int64_t> i, const BatchContext&)
        const override {
      std::this_thread::sleep_for(
          std::chrono::milliseconds(10) + 4 * longest_step.load());
      const auto n = static_cast<int64_t>(i.size());
      return {{torch::ones({n, 2})}, {torch::zeros({n}, torch::kLong)}};
    }
  };
  const auto slow = std::make_shared<SlowData>();
  DataBunch data =
      DataBunch::create(slow, nullptr, {.batch_size = 8, .workers = 0});
  data.device = torch::kCPU;
  Learner learn(data, point_net(), quiet());
  Clock::time_point begin;
  learn.add<LambdaCallback>(
      {.on_batch_begin = [&](Learner&) { begin = Clock::now(); },
       .on_batch_end =
           [&](Learner&) {
             slow->longest_step =
                 std::max(slow->longest_step.load(), Clock::now() - begin);
           }});
  const TrainingPlan plan = learn.plan({.batches = 2});
  EXPECT_GE(plan.loader_milliseconds, 10);
  std::string all;
  for (const std::string& text : plan.advice) all += text + "\n";
  for (const std::string& text : plan.problems) all += text + "\n";
  EXPECT_NE(all.find("waits for data"), std::string::npos) << all;
  EXPECT_NE(all.find("no validation data"), std::string::npos) << all;
  EXPECT_NE(all.find("4 of 36 samples"), std::string::npos) << all;
}

TEST(Plan, ReportsThePrecision) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_fp16({.force_fp16 = true});
  const TrainingPlan plan = learn.plan();
  EXPECT_EQ(plan.precision, "fp16 model, fp32 master weights");
}

TEST(Plan, ChecksItsOptions) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.plan({.batches = 0}); },
      {"batches is 0", "expected a number >= 1"});
}

}  // namespace
}  // namespace tern::plan_test
