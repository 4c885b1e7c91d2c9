#include "tern/callbacks/schedules/param_scheduler.h"

#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::param_scheduler_test {
namespace {

TEST(Schedule, GoesFromStartToEnd) {
  for (const Schedule& s :
       {schedule::linear(2, 8),
        schedule::cosine(2, 8),
        schedule::exponential(2, 8),
        schedule::polynomial(2, 8, 3)}) {
    EXPECT_DOUBLE_EQ(s(0), 2);
    EXPECT_DOUBLE_EQ(s(1), 8);
  }
  EXPECT_EQ(schedule::constant(3)(0.7), 3);
}

TEST(Schedule, HasItsShapeInBetween) {
  EXPECT_DOUBLE_EQ(schedule::linear(2, 8)(0.25), 3.5);
  EXPECT_DOUBLE_EQ(schedule::cosine(2, 8)(0.5), 5);
  EXPECT_LT(schedule::cosine(2, 8)(0.1), schedule::linear(2, 8)(0.1));
  EXPECT_DOUBLE_EQ(schedule::exponential(2, 8)(0.5), 4);
  EXPECT_DOUBLE_EQ(schedule::polynomial(2, 8, 2)(0.5), 3.5);
}

TEST(Schedule, RunsPhasesInOrder) {
  const Schedule s = schedule::phases(
      {{0.25, schedule::linear(0, 1)},
       {0.25, schedule::constant(5)},
       {0.5, schedule::linear(1, 0)}});
  EXPECT_DOUBLE_EQ(s(0.125), 0.5);
  EXPECT_DOUBLE_EQ(s(0.25), 5);
  EXPECT_DOUBLE_EQ(s(0.75), 0.5);
  EXPECT_DOUBLE_EQ(s(1), 0);
}

TEST(Schedule, NeverPassesTheEndOfAPhase) {
  // In floating point, (1 - 0.7) / 0.3 is slightly above 1.
  const Schedule s = schedule::phases(
      {{0.1, schedule::constant(1)},
       {0.6, schedule::constant(1)},
       {0.3, schedule::linear(1, 0)}});
  EXPECT_EQ(s(1), 0);
}

TEST(Schedule, RejectsPhasesThatDoNotSumToOne) {
  expect_error<c10::ValueError>(
      [] {
        schedule::phases(
            {{0.5, schedule::constant(1)}, {0.4, schedule::constant(1)}});
      },
      {"2 phases add up to 0.9", "expected 1"});
  expect_error<c10::ValueError>(
      [] { schedule::phases({}); },
      {"0 phases add up to 0"});
  expect_error<c10::ValueError>(
      [] {
        schedule::phases({{1.5, schedule::constant(1)}, {-0.5, {}}});
      },
      {"part -0.5 and no schedule"});
}

TEST(Schedule, RejectsInvalidShapes) {
  expect_error<c10::ValueError>(
      [] { schedule::exponential(0, 1); },
      {"start is 0", "both > 0"});
  expect_error<c10::ValueError>(
      [] { schedule::polynomial(0, 1, 0); },
      {"power is 0"});
}

using namespace testing_support;  // NOLINT

constexpr int64_t kBatches = 8;

std::unique_ptr<Learner> learner(LearnerOptions options = {}) {
  auto learn = std::make_unique<Learner>(
      point_data(32 * kBatches, 0),
      point_net(),
      quiet(std::move(options)));
  learn->split({"3"});
  return learn;
}

std::shared_ptr<Callback> linear(HyperParameter hyper, double a, double b) {
  return std::make_shared<ParamScheduler>(hyper, schedule::linear(a, b));
}

// Records the first layer group's value at each step.
std::shared_ptr<Callback> record(
    std::vector<double>& values,
    double (*read)(const torch::optim::OptimizerOptions&)) {
  return std::make_shared<LambdaCallback>(
      LambdaCallbackOptions{.on_backward_end = [&values, read](Learner& l) {
        values.push_back(read(l.optimizer().param_groups()[0].options()));
      }});
}

double lr_of(const torch::optim::OptimizerOptions& options) {
  return options.get_lr();
}

TEST(ParamScheduler, SetsTheValueBeforeEachStep) {
  const auto learn = learner();
  std::vector<double> lrs;
  learn->fit(2, 1.0, {linear(HyperParameter::lr, 0, 16), record(lrs, lr_of)});
  ASSERT_EQ(lrs.size(), 16u);
  for (size_t i = 0; i < lrs.size(); ++i) {
    EXPECT_DOUBLE_EQ(lrs[i], static_cast<double>(i));
  }
}

// Three epochs of two batches become one of two and two of eight, or the
// other way round, and the schedule still ends with the fit.
TEST(ParamScheduler, FollowsAFitWhoseLengthACallbackChanges) {
  for (const bool is_limited_first : {false, true}) {
    const TempFolder temp;
    std::vector<std::vector<double>> runs;
    for (const bool is_resumed : {false, true}) {
      // An epoch that was shortened within the fit cannot be resumed.
      if (is_resumed && !is_limited_first) continue;
      const auto learn = learner();
      const auto limit =
          std::make_shared<LimitBatches>(LimitBatches::Options{.train = 2});
      if (is_limited_first) learn->add(limit);
      std::vector<double>& lrs = runs.emplace_back();
      learn->add<LambdaCallback>(
          LambdaCallback::Options{.on_epoch_begin = [&](Learner& l) {
            const bool is_there = l.find<LimitBatches>() != nullptr;
            if (l.state().epoch == 0 || is_there != is_limited_first) return;
            if (is_there) {
              l.remove(*limit);
            } else {
              l.add(limit);
            }
          }});
      learn->add<LambdaCallback>(LambdaCallback::Options{
          .on_batch_end =
              [&](Learner& l) {
                if (l.state().training && l.state().iteration == 11 &&
                    !is_resumed)
                  l.save_checkpoint(temp / "run");
              },
          .order = callback_order::kLast});
      if (is_resumed) learn->resume(temp / "run");
      learn->fit(
          3,
          1.0,
          {linear(HyperParameter::lr, 1, 0), record(lrs, lr_of)});
    }
    const std::vector<double>& whole = runs[0];
    ASSERT_EQ(whole.size(), is_limited_first ? 18u : 12u);
    const double last_step = whole[whole.size() - 2] - whole.back();
    EXPECT_NEAR(whole.back(), last_step, 1e-12);  // the next would be 0
    if (!is_limited_first) continue;
    EXPECT_EQ(runs[1], (std::vector<double>{whole.begin() + 11, whole.end()}));
  }
}

TEST(ParamScheduler, RestartsInASecondFit) {
  const auto learn = learner();
  std::vector<double> lrs;
  learn->add(linear(HyperParameter::lr, 0, 8)).add(record(lrs, lr_of));
  learn->fit(1).fit(1);
  ASSERT_EQ(lrs.size(), 16u);
  EXPECT_DOUBLE_EQ(lrs[7], 7);
  EXPECT_DOUBLE_EQ(lrs[8], 0);
}

TEST(ParamScheduler, SchedulesMomentumAndWeightDecay) {
  const auto learn = learner({.bn_weight_decay = false});
  std::vector<double> moms, decays;
  learn->fit(
      1,
      1e-3,
      {linear(HyperParameter::momentum, 0.8, 0),
       linear(HyperParameter::weight_decay, 0, 0.8),
       record(moms, optim::momentum),
       record(decays, optim::weight_decay)});
  EXPECT_NEAR(moms[4], 0.4, 1e-12);
  EXPECT_NEAR(decays[4], 0.4, 1e-12);
  // Biases and normalization layers, the second parameter group, keep their
  // weight decay of 0.
  EXPECT_EQ(
      optim::weight_decay(learn->optimizer().param_groups()[1].options()),
      0);
}

TEST(ParamScheduler, AcceptsAScheduleForEachLayerGroup) {
  const auto learn = learner();
  std::vector<std::vector<double>> rates;
  learn->fit(
      1,
      1e-3,
      {std::make_shared<ParamScheduler>(std::vector<ParamScheduler::Scheduled>{
           {HyperParameter::lr,
            {schedule::constant(1), schedule::linear(0, 8)}}}),
       std::make_shared<LambdaCallback>(
           LambdaCallbackOptions{.on_step = [&](Learner& l) {
             rates.push_back({});
             for (const auto& group : l.optimizer().param_groups()) {
               rates.back().push_back(group.options().get_lr());
             }
           }})});
  EXPECT_EQ(rates.at(3), (std::vector<double>{1, 3}));
}

TEST(ParamScheduler, DoesNotCountSkippedSteps) {
  for (const bool fused : {true, false}) {
    const auto learn = learner(
        {.optimizer = fused
                          ? optimizer<optim::SGD>(torch::optim::SGDOptions(0.1))
                          : optimizer<torch::optim::SGD>(
                                torch::optim::SGDOptions(0.1))});
    learn->to_amp({.dtype = torch::kHalf}).add(overflow_at({2, 3}));
    std::vector<double> lrs;
    learn->fit(1, 1.0, {linear(HyperParameter::lr, 0, 8), record(lrs, lr_of)});
    EXPECT_EQ(lrs, (std::vector<double>{0, 1, 2, 2, 2, 3, 4, 5}));
  }
}

TEST(ParamScheduler, AdvancesWhileGradientsAccumulate) {
  const auto learn = learner();
  learn->add<GradientAccumulation>({.batches = 2});
  std::vector<double> lrs;
  learn->fit(1, 1.0, {linear(HyperParameter::lr, 0, 8), record(lrs, lr_of)});
  EXPECT_EQ(lrs, (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ParamScheduler, SavesItsPositionInItsState) {
  ParamScheduler scheduler(HyperParameter::lr, schedule::linear(0, 8));
  const auto learn = learner();
  const auto other = std::make_shared<ParamScheduler>(
      HyperParameter::lr,
      schedule::linear(0, 8));
  learn->fit(1, 1.0, {other});
  scheduler.load_state_dict(other->state_dict());
  EXPECT_EQ(scheduler.state_dict()["done"].item<int64_t>(), kBatches);
  expect_error<c10::ValueError>(
      [&] { scheduler.load_state_dict(StateDict()); },
      {"no \"done\""});
}

TEST(ParamScheduler, DoesNotInterfereWithSchedulersOfLibTorch) {
  const auto learn = learner(
      {.optimizer =
           optimizer<torch::optim::SGD>(torch::optim::SGDOptions(1.0))});
  learn->set_learning_rates(1.0);
  torch::optim::StepLR steps(learn->optimizer(), /*step_size=*/2, 0.5);
  std::vector<double> lrs;
  learn->fit(
      1,
      1.0,
      {record(lrs, lr_of),
       std::make_shared<LambdaCallback>(LambdaCallbackOptions{
           .on_batch_end = [&](Learner&) { steps.step(); }})});
  // The first step() of LibTorch's scheduler only counts.
  EXPECT_EQ(lrs, (std::vector<double>{1, 1, 1, .5, .5, .25, .25, .125}));
}

TEST(ParamScheduler, RejectsTwoSchedulesForOneHyperparameter) {
  const auto learn = learner();
  learn->add(linear(HyperParameter::lr, 1, 0));
  expect_error<c10::ValueError>(
      [&] { learn->fit(1, 1.0, {linear(HyperParameter::lr, 0, 1)}); },
      {"both set the learning rate"});
  learn->fit(1, 1.0, {linear(HyperParameter::momentum, 0.9, 0.8)});
}

TEST(ParamScheduler, RejectsAWrongNumberOfSchedules) {
  const auto learn = learner();
  expect_error<c10::ValueError>(
      [&] {
        learn->fit(
            1,
            1.0,
            {std::make_shared<ParamScheduler>(
                std::vector<ParamScheduler::Scheduled>{
                    {HyperParameter::lr,
                     std::vector<Schedule>(3, schedule::constant(1))}})});
      },
      {"3 schedules of lr", "2 layer groups"});
  expect_error<c10::ValueError>(
      [] { ParamScheduler(HyperParameter::lr, Schedule()); },
      {"schedule of lr is missing"});
  const auto without_momentum = learner(
      {.optimizer = optimizer<torch::optim::Adagrad>(
           torch::optim::AdagradOptions(0.1))});
  expect_error<c10::NotImplementedError>(
      [&] {
        without_momentum->fit(
            1,
            1.0,
            {linear(HyperParameter::momentum, 0.9, 0.8)});
      },
      {"momentum"});
}

TEST(ParamScheduler, RejectsInvalidValuesBeforeTheFirstStep) {
  const auto learn = learner();
  const Tensors before = parameters_of(*learn);
  expect_error<c10::ValueError>(
      [&] { learn->fit(2, 1.0, {linear(HyperParameter::lr, 1, -1)}); },
      {"the schedule of", "gives -0.0", "expected a finite number >= 0"});
  const auto gap = [](double position) { return position > 0.8 ? NAN : 0.9; };
  expect_error<c10::ValueError>(
      [&] {
        learn->fit(
            1,
            1.0,
            {std::make_shared<ParamScheduler>(HyperParameter::momentum, gap)});
      },
      {"gives nan at 0.81 of the fit"});
  EXPECT_TRUE(all_equal(parameters_of(*learn), before));
}

TEST(ParamScheduler, FindsAnInvalidValueBetweenTheFirstSampledPositions) {
  const auto learn = learner();
  const auto gap = [](double position) { return position == 0.125 ? -1 : 1; };
  expect_error<c10::ValueError>(
      [&] {
        learn->fit(
            1,
            1.0,
            {std::make_shared<ParamScheduler>(HyperParameter::lr, gap)});
      },
      {"gives -1 at 0.125 of the fit"});
}

}  // namespace
}  // namespace tern::param_scheduler_test
