#include "tern/callbacks/schedules/lr_find.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/nn/modules/dropout.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::lr_find_test {
namespace {

using namespace testing_support;  // NOLINT

torch::nn::Sequential net_with_dropout() {
  torch::nn::Sequential net = point_net();
  net->push_back(torch::nn::Dropout(0.1));
  return net;
}

TEST(LrFind, FindsALearningRateThatTrains) {
  Learner learn(point_data(), point_net(), quiet());
  const LrFind found = learn.lr_find();
  EXPECT_LE(found.lrs.size(), 100u);
  EXPECT_EQ(found.lrs.size(), found.losses.size());
  EXPECT_DOUBLE_EQ(found.lrs[0], 1e-7);
  EXPECT_NEAR(found.lrs[10], 1e-7 * std::pow(1e8, 0.1), 1e-12);
  for (const auto& lr :
       {found.valley, found.steep, found.minimum, found.slide}) {
    ASSERT_TRUE(lr);
    EXPECT_GT(*lr, 1e-6);
    EXPECT_LT(*lr, 10);
  }
  learn.fit(5, *found.valley);
  EXPECT_LT(learn.recorder().epochs().back().valid_loss, 0.6);
}

// Training must be bit-identical in every precision, before a first fit and
// after one.
TEST(LrFind, LeavesTrainingBitIdentical) {
  for (const int precision : {0, 1, 2}) {
    for (const int64_t epochs_before : {0, 1}) {
      const auto train = [&](bool find) {
        torch::manual_seed(11);
        Learner learn(point_data(), net_with_dropout(), quiet());
        if (precision == 1) learn.to_fp16({.force_fp16 = true});
        if (precision == 2) learn.to_amp({.dtype = torch::kHalf});
        learn.fit(epochs_before);
        if (find) learn.lr_find({.num_it = 20});
        learn.fit(2);
        EXPECT_EQ(
            learn.recorder().losses().size(),
            static_cast<size_t>(8 * (epochs_before + 2)));
        EXPECT_EQ(learn.state().iteration, 8 * (epochs_before + 2));
        return parameters_of(learn.to_fp32());
      };
      EXPECT_TRUE(all_equal(train(true), train(false)))
          << precision << " after " << epochs_before;
    }
  }
}

TEST(LrFind, RestoresOptimizersOfLibTorch) {
  const auto train = [&](bool find) {
    Learner learn(
        point_data(),
        point_net(),
        quiet(
            {.optimizer = optimizer<torch::optim::SGD>(
                 torch::optim::SGDOptions(0.1).momentum(0.9))}));
    learn.fit(1);
    if (find) learn.lr_find({.num_it = 20});
    return parameters_of(learn.fit(1));
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(LrFind, StopsWhereTheLossExplodes) {
  Learner learn(point_data(), point_net(), quiet());
  const auto options = LrFindOptions{.start = 1, .end = 1e6};
  EXPECT_LT(learn.lr_find(options).lrs.size(), 100u);
}

TEST(LrFind, StopsAtALossThatIsNaN) {
  Learner learn(
      point_data(),
      point_net(),
      quiet({.loss = Loss([](torch::Tensor pred, torch::Tensor) {
               return pred.sum() * NAN;
             })}));
  const LrFind found = learn.lr_find();
  EXPECT_EQ(found.lrs.size(), 1u);
  EXPECT_FALSE(found.valley);
}

TEST(LrFind, GivesEachLayerGroupItsOwnLearningRates) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"3"});
  std::vector<std::vector<double>> rates;
  learn.add<LambdaCallback>({.on_step = [&](Learner& l) {
    rates.emplace_back();
    for (const auto& group : l.optimizer().param_groups()) {
      rates.back().push_back(group.options().get_lr());
    }
  }});
  learn.lr_find({.start = {1e-8, 1e-6}, .end = {0.1, 10}, .num_it = 8});
  EXPECT_NEAR(rates[0][0], 1e-8, 1e-20);
  EXPECT_NEAR(rates[0][1], 1e-6, 1e-18);
  EXPECT_NEAR(rates[4][0] / 1e-8, std::pow(1e7, 0.5), 1e-6);
}

TEST(LrFind, NeitherPrintsNorValidates) {
  const auto sink = std::make_shared<MemorySink>();
  Learner learn(point_data(), point_net(), {.sink = sink});
  bool validated = false;
  learn.add<LambdaCallback>({.on_batch_begin = [&](Learner& l) {
    validated |= !l.state().training;
  }});
  learn.lr_find();
  EXPECT_TRUE(sink->lines.empty());
  EXPECT_FALSE(validated);
}

TEST(LrFind, RestoresTheLearnerAfterAnException) {
  Learner learn(point_data(), point_net(), quiet());
  const Tensors before = parameters_of(learn);
  bool throws = true;
  learn.add<LambdaCallback>({.on_step_end = [&](Learner& l) {
    if (throws && l.state().batch == 2) throw std::runtime_error("stop");
  }});
  EXPECT_THROW(learn.lr_find(), std::runtime_error);
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  throws = false;
  learn.fit(1);
}

// The fixture by lr_find_fixture.py has the suggestions of fastai's own
// functions for these losses.
TEST(LrFind, SuggestsWhatFastaiSuggests) {
  const auto fixture = nlohmann::json::parse(
      std::ifstream(in_tests_folder("callbacks/lr_find_fixture.json")));
  for (const auto& c : fixture["cases"]) {
    const auto losses = c["losses"].get<std::vector<double>>();
    Learner learn(
        point_data(32 * 100, 0),
        point_net(),
        quiet(
            {.loss = Loss(
                 [&,
                  at = size_t{0}](torch::Tensor pred, torch::Tensor) mutable {
                   return pred.sum() * 0 + losses.at(at++);
                 })}));
    const LrFind found = learn.lr_find({.stop_div = false});
    const auto& smooth = c["smooth"];
    ASSERT_EQ(found.losses.size(), smooth.size());
    for (size_t i = 0; i < smooth.size(); ++i) {
      EXPECT_NEAR(found.losses[i], smooth[i].get<double>(), 1e-6);
    }
    EXPECT_NEAR(*found.valley / c["valley"].get<double>(), 1, 1e-5);
    EXPECT_NEAR(*found.steep / c["steep"].get<double>(), 1, 1e-5);
    EXPECT_NEAR(*found.minimum / c["minimum"].get<double>(), 1, 1e-5);
    EXPECT_NEAR(*found.slide / c["slide"].get<double>(), 1, 1e-5);
  }
}

TEST(LrFind, PlotsTheCurveWithItsSuggestions) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet());
  learn.lr_find().plot(folder / "lr.svg");
  std::stringstream svg;
  svg << std::ifstream(folder / "lr.svg").rdbuf();
  for (const char* text : {"learning rate", "valley", "1e-06"}) {
    EXPECT_NE(svg.str().find(text), std::string::npos) << text;
  }
}

TEST(LrFind, LeavesTheExplosionOutOfItsPlot) {
  const TempFolder folder;
  LrFind found;
  for (int i = 0; i < 20; ++i) {
    found.lrs.push_back(std::pow(10, -6 + 0.25 * i));
    found.losses.push_back(i < 15 ? 2 - 0.1 * i : 800);
  }
  found.plot(folder / "lr.svg");
  std::stringstream svg;
  svg << std::ifstream(folder / "lr.svg").rdbuf();
  EXPECT_EQ(svg.str().find(">800<"), std::string::npos);
  EXPECT_NE(svg.str().find(">2.0<"), std::string::npos);
}

TEST(LrFind, RejectsAnEmptyLoaderAndLeavesTheLearnerUsable) {
  Learner learn(point_data(16), point_net(), quiet());  // less than a batch
  const Tensors before = parameters_of(learn);
  expect_error<c10::ValueError>(
      [&] { learn.lr_find(); },
      {"the train loader has no batch", "16 samples, batch size 32"});
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  EXPECT_FALSE(learn.state().is_fitting);
  learn.validate();
}

TEST(LrFind, RejectsTooFewBatches) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.lr_find({.num_it = 5}); },
      {"num_it is 5"});
  expect_error<c10::ValueError>(
      [&] { learn.lr_find({.start = 0.}); },
      {"start is 0"});
}

TEST(LrFind, RejectsAStartThatIsNotBelowTheEnd) {
  Learner learn(point_data(), point_net(), quiet());
  for (const double end : {1e-3, 1.0}) {
    expect_error<c10::ValueError>(
        [&] { learn.lr_find({.start = 1., .end = end}); },
        {"start is 1 and end is", "expected 0 < start < end"});
  }
}

}  // namespace
}  // namespace tern::lr_find_test
