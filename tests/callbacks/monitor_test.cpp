#include "tern/callbacks/monitor.h"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/logging/train_metrics.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/callbacks/schedules/param_scheduler.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/tiny.h"

namespace tern::monitor_test {
namespace {

using namespace testing_support;  // NOLINT

struct Case {
  const char* name;
  EarlyStopping::Options options;
  std::vector<double> valid_losses;
  int64_t epochs;  // number of epochs trained
};

class EarlyStoppingTest : public testing::TestWithParam<Case> {};

TEST_P(EarlyStoppingTest, EndsTheFitWhenPatienceEnds) {
  const Case& c = GetParam();
  Learner learn(point_data(64, 32), point_net(), quiet());
  learn.add(scripted_valid_loss(c.valid_losses))
      .add<EarlyStopping>(c.options)
      .fit(static_cast<int64_t>(c.valid_losses.size()));
  EXPECT_EQ(learn.recorder().epochs().size(), static_cast<size_t>(c.epochs));
}

INSTANTIATE_TEST_SUITE_P(
    Losses,
    EarlyStoppingTest,
    testing::Values(
        Case{"falling", {}, {4, 3, 2, 1}, 4},
        Case{"rising", {}, {1, 2, 3, 4}, 2},
        Case{"flat", {.patience = 2}, {1, 1, 1, 1}, 3},
        Case{"patience_restarts", {.patience = 2}, {3, 4, 2, 4, 1, 4, 4, 4}, 7},
        Case{"no_patience", {.patience = 0}, {1, 2, 3}, 2},
        Case{"small_gains", {.min_delta = 0.5}, {3, 2.4, 2.3, 2.2}, 3},
        Case{"nan_is_never_best", {.patience = 2}, {NAN, 3, NAN, 2, 1}, 5},
        Case{"nan_alone", {.patience = 2}, {NAN, NAN, NAN}, 2}),
    [](const auto& info) { return info.param.name; });

TEST(EarlyStopping, ResetsTheBestValueAtTheNextFit) {
  Learner learn(point_data(64, 32), point_net(), quiet());
  learn.add(scripted_valid_loss({1, 2, /* second fit */ 9, 8, 7}))
      .add<EarlyStopping>()
      .fit(2)
      .fit(3);
  EXPECT_EQ(learn.recorder().epochs().size(), 5u);
}

TEST(EarlyStopping, UsesTheDirectionOfAMetric) {
  Learner learn(
      point_data(64, 32),
      point_net(),
      quiet({.metrics = {accuracy()}}));
  std::vector<double> values = {0.5, 0.6, 0.4, 0.3};
  learn
      .add<LambdaCallback>(
          {.on_epoch_end =
               [&](Learner& l) {
                 l.state().last_metrics.at(0).value =
                     values.at(l.state().epoch);
               },
           .order = callback_order::kRecorder - 1})
      .add<EarlyStopping>({.monitor = "accuracy"})
      .fit(4);
  EXPECT_EQ(learn.recorder().epochs().size(), 3u);
}

TEST(EarlyStopping, PrintsTheReason) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(64, 32), point_net(), {.sink = sink});
  learn.add(scripted_valid_loss({1, 2, 3})).add<EarlyStopping>().fit(3);
  EXPECT_EQ(
      sink->lines.back(),
      "EarlyStopping: valid_loss did not improve on 1.000000 for 1 epoch; "
      "training stops.");
}

TEST(EarlyStopping, DoesNothingInADryRun) {
  Learner learn(point_data(64, 32), point_net(), quiet());
  learn.add<EarlyStopping>({.patience = 0});
  EXPECT_EQ(learn.lr_find({.num_it = 6, .stop_div = false}).lrs.size(), 6u);
}

TEST(EarlyStopping, ContinuesFromItsSavedState) {
  const auto first = std::make_shared<EarlyStopping>();
  Learner learn(point_data(64, 32), point_net(), quiet());
  learn.add(scripted_valid_loss({3, 1})).add(first).fit(2);
  const StateDict saved = first->state_dict();
  EXPECT_EQ(saved["best"].item<double>(), 1);
  EXPECT_EQ(saved["best"].scalar_type(), torch::kDouble);

  Learner resumed(point_data(64, 32), point_net(), quiet());
  resumed.add(scripted_valid_loss({2, 1.5}));
  const auto second = std::make_shared<EarlyStopping>();
  resumed.add(second);
  resumed.add<LambdaCallback>(
      {.on_train_begin = [&](Learner&) { second->load_state_dict(saved); },
       .order = callback_order::kLast});
  resumed.fit(2);
  EXPECT_EQ(resumed.recorder().epochs().size(), 1u);
  expect_error<c10::ValueError>(
      [&] { second->load_state_dict(StateDict()); },
      {"no \"best\""});
}

TEST(EarlyStopping, NamesTheAvailableMonitorsAfterTheFirstEpoch) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(
      point_data(64, 32),
      point_net(),
      {.metrics = {accuracy()}, .sink = sink});
  learn.add<EarlyStopping>({.monitor = "valid_los", .mode = "min"});
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"[EarlyStopping]", "\"valid_los\"", "train_loss, valid_loss, accuracy"});
  EXPECT_EQ(
      sink->lines.at(0),
      "EarlyStopping: no metric is named \"valid_los\"; a callback must log "
      "it.");
  EXPECT_EQ(learn.recorder().epochs().size(), 1u);

  Learner no_valid(point_data(64, 0), point_net(), quiet());
  no_valid.add<EarlyStopping>();
  expect_error<c10::ValueError>(
      [&] { no_valid.fit(1); },
      {"no \"valid_loss\"", "one of train_loss."});
}

// Logs these values at the ends of the epochs of all fits, one per epoch.
std::shared_ptr<Callback> logged(
    const std::string& name,
    std::vector<double> values) {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_epoch_end = [name, values, at = size_t{0}](Learner& l) mutable {
        l.log(name, values.at(at++));
      }});
}

TEST(EarlyStopping, MonitorsValuesLoggedByCallbacks) {
  struct Value {
    const char *name, *mode;
    size_t epochs;  // number of epochs trained
  };
  // The direction follows from the name, or from the mode if given.
  for (const Value& value :
       {Value{"angle_error", "", 3},
        {"perplexity", "min", 3},
        {"angle", "max", 2},
        {"error_free", "max", 2}}) {
    Learner learn(point_data(64, 32), point_net(), quiet());
    learn.add(logged(value.name, {0.5, 0.4, 0.6, 0.7}))
        .add<EarlyStopping>({.monitor = value.name, .mode = value.mode})
        .fit(4);
    EXPECT_EQ(learn.recorder().epochs().size(), value.epochs) << value.name;
  }
}

TEST(EarlyStopping, DoesNotGuessTheDirection) {
  for (const char* const name : {"perplexity", "grad_norm", "acuracy"}) {
    Learner learn(
        point_data(64, 32),
        point_net(),
        quiet({.metrics = {accuracy()}}));
    learn.add<EarlyStopping>({.monitor = name});
    expect_error<c10::ValueError>(
        [&] { learn.fit(1); },
        {fmt::format("the monitor is \"{}\"", name),
         ".mode = \"min\" or \"max\"",
         "one of the monitors train_loss, valid_loss, accuracy."});
    EXPECT_TRUE(learn.recorder().losses().empty());
  }
  expect_error<c10::ValueError>(
      [] { EarlyStopping callback({.mode = "lower"}); },
      {"[EarlyStopping] mode is \"lower\""});
}

TEST(EarlyStopping, UsesTheDirectionOfATrainingMetric) {
  // Its values rise, which is worse.
  const Metric distance(
      "distance",
      [batches = 0](const torch::Tensor& pred, const torch::Tensor&) mutable {
        return torch::full({pred.size(0)}, static_cast<double>(++batches));
      },
      /*higher_is_better=*/false);
  for (const bool is_own : {false, true}) {
    Learner learn(
        point_data(64, 32),
        point_net(),
        quiet({.metrics = {is_own ? accuracy() : distance}}));
    TrainMetrics::Options options;
    if (is_own) options.metrics = {distance};
    learn.add<TrainMetrics>(options)
        .add<EarlyStopping>({.monitor = "train_distance"})
        .fit(4);
    EXPECT_EQ(learn.recorder().epochs().size(), 2u);
  }
}

TEST(EarlyStopping, CanKeepComparingWithEarlierFits) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(64, 32), point_net(), {.sink = sink});
  learn.add(scripted_valid_loss({1, 2, /* second fit */ 9, 8, 7}))
      .add<EarlyStopping>({.reset_on_fit = false})
      .fit(2)
      .fit(3);
  EXPECT_EQ(learn.recorder().epochs().size(), 3u);
  EXPECT_EQ(
      sink->lines.back(),
      "EarlyStopping: valid_loss did not improve on 1.000000 of all fits for 1 "
      "epoch; training stops.");
}

TEST(EarlyStopping, RejectsNegativeOptions) {
  expect_error<c10::ValueError>(
      [] { EarlyStopping callback({.patience = -1}); },
      {"patience is -1"});
  expect_error<c10::ValueError>(
      [] { EarlyStopping callback({.min_delta = -0.1}); },
      {"min_delta is -0.1"});
}

std::unique_ptr<Learner> learner(std::vector<double> valid_losses) {
  auto learn =
      std::make_unique<Learner>(point_data(64, 32), point_net(), quiet());
  learn->add(scripted_valid_loss(std::move(valid_losses)));
  return learn;
}

// Records the learning rate of the last layer group at the end of each epoch.
std::shared_ptr<Callback> record(std::vector<double>& rates) {
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_epoch_end =
          [&rates](Learner& l) {
            rates.push_back(
                l.optimizer().param_groups().back().options().get_lr());
          },
      .order = callback_order::kLast});
}

void expect_rates(
    const std::vector<double>& rates,
    const std::vector<double>& expected) {
  ASSERT_EQ(rates.size(), expected.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    EXPECT_NEAR(rates[i] / expected[i], 1, 1e-12) << "epoch " << i;
  }
}

TEST(ReduceLROnPlateau, DividesTheLearningRateWhenPatienceEnds) {
  const auto learn = learner({3, 2, 2, 2, 2, 1});
  std::vector<double> rates;
  learn->add<ReduceLROnPlateau>({.patience = 2}).add(record(rates)).fit(6, 1.0);
  expect_rates(rates, {1, 1, 1, 0.1, 0.1, 0.1});
}

TEST(ReduceLROnPlateau, KeepsTheRatiosOfLayerGroups) {
  const auto learn = learner({1, 2, 3, 4});
  learn->split({"3"});
  learn->add<ReduceLROnPlateau>({.factor = 2}).fit(4, {0.01, 1.0});
  const auto& groups = learn->optimizer().param_groups();
  EXPECT_NEAR(groups[0].options().get_lr(), 0.01 / 8, 1e-15);
  EXPECT_NEAR(groups[1].options().get_lr(), 1.0 / 8, 1e-15);
}

TEST(ReduceLROnPlateau, StopsAtMinLrAndKeepsTheRatios) {
  const auto learn = learner({1, 2, 3, 4});
  learn->split({"3"});
  std::vector<double> rates;
  learn->add<ReduceLROnPlateau>({.factor = 4, .min_lr = 0.1})
      .add(record(rates))
      .fit(4, {0.01, 1.0});
  expect_rates(rates, {1, 0.25, 0.1, 0.1});
  EXPECT_NEAR(
      learn->optimizer().param_groups()[0].options().get_lr(),
      0.001,
      1e-15);
}

TEST(ReduceLROnPlateau, StartsTheNextFitWithThatFitsLearningRate) {
  const auto learn = learner({1, 2, /* second fit */ 9, 8, 8});
  std::vector<double> rates;
  learn->add<ReduceLROnPlateau>().add(record(rates));
  learn->fit(2, 1.0).fit(3, 0.5);
  expect_rates(rates, {1, 0.1, 0.5, 0.5, 0.05});
}

TEST(ReduceLROnPlateau, ContinuesFromItsSavedState) {
  const auto saved = std::make_shared<ReduceLROnPlateau>(
      ReduceLROnPlateau::Options{.patience = 2});
  learner({1, 2})->add(saved).fit(2);
  const auto resumed = std::make_shared<ReduceLROnPlateau>(
      ReduceLROnPlateau::Options{.patience = 2});
  std::vector<double> rates;
  learner({3})
      ->add(resumed)
      .add(record(rates))
      .add<LambdaCallback>(
          {.on_train_begin =
               [&](Learner&) { resumed->load_state_dict(saved->state_dict()); },
           .order = callback_order::kLast})
      .fit(1, 1.0);
  expect_rates(rates, {0.1});
}

TEST(ReduceLROnPlateau, UsesModeAndTheBestValueOfEarlierFits) {
  std::vector<double> rates;
  Learner learn(point_data(64, 32), point_net(), quiet());
  learn.add(logged("wer", {3, 2, 1, /* second fit */ 2, 3}))
      .add<ReduceLROnPlateau>(
          {.monitor = "wer", .mode = "min", .reset_on_fit = false})
      .add(record(rates));
  learn.fit(3, 1.0).fit(2, 1.0);
  expect_rates(rates, {1, 1, 1, 0.1, 0.01});
}

TEST(ReduceLROnPlateau, RejectsASecondLearningRateSchedule) {
  const auto learn = learner({1, 2});
  learn->add<ReduceLROnPlateau>();
  expect_error<c10::ValueError>(
      [&] { learn->fit_one_cycle(2); },
      {"ReduceLROnPlateau and ParamScheduler both set the learning rate"});
  expect_error<c10::ValueError>(
      [&] { learn->add<ReduceLROnPlateau>(); },
      {"both set the learning rate"});
  learn->fit(
      1,
      {},
      {std::make_shared<ParamScheduler>(
          HyperParameter::momentum,
          schedule::constant(0.9))});
}

TEST(ReduceLROnPlateau, RejectsOptionsOutOfRange) {
  expect_error<c10::ValueError>(
      [] { ReduceLROnPlateau callback({.factor = 0.2}); },
      {"factor is 0.2", "divided by"});
  expect_error<c10::ValueError>(
      [] { ReduceLROnPlateau callback({.min_lr = -1}); },
      {"min_lr is -1"});
  expect_error<c10::ValueError>(
      [] { ReduceLROnPlateau callback({.patience = -2}); },
      {"[ReduceLROnPlateau] patience is -2"});
}

}  // namespace
}  // namespace tern::monitor_test
