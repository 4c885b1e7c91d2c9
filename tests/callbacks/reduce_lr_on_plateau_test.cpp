#include "tern/callbacks/reduce_lr_on_plateau.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/param_scheduler.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/scripted.h"
#include "tern/tests/support/tiny.h"

namespace tern::reduce_lr_on_plateau_test {
namespace {

using namespace testing_support;  // NOLINT

std::unique_ptr<Learner> learner(std::vector<double> valid_losses) {
  auto learn =
      std::make_unique<Learner>(point_data(64, 32), point_net(), quiet());
  learn->add(scripted_valid_loss(std::move(valid_losses)));
  return learn;
}

// Of the last layer group at the end of each epoch.
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

TEST(ReduceLROnPlateau, DividesTheRateWhenPatienceEnds) {
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

TEST(ReduceLROnPlateau, StopsAtTheLowestRateAndKeepsTheRatiosThere) {
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

TEST(ReduceLROnPlateau, BeginsTheNextFitWithItsOwnRate) {
  const auto learn = learner({1, 2, /* second fit */ 9, 8, 8});
  std::vector<double> rates;
  learn->add<ReduceLROnPlateau>().add(record(rates));
  learn->fit(2, 1.0).fit(3, 0.5);
  expect_rates(rates, {1, 0.1, 0.5, 0.5, 0.05});
}

TEST(ReduceLROnPlateau, GoesOnFromItsSavedState) {
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

TEST(ReduceLROnPlateau, IsRefusedBesideAScheduleOfTheRate) {
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

TEST(ReduceLROnPlateau, RefusesOptionsOutOfTheirRange) {
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
}  // namespace tern::reduce_lr_on_plateau_test
