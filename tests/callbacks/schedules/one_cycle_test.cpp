#include "tern/callbacks/schedules/one_cycle.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include "tern/callbacks/limit_batches.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::one_cycle_test {
namespace {

using namespace testing_support;  // NOLINT
using nlohmann::json;

// The fixture that one_cycle_fixture.py wrote with fastai.
const json& fixture() {
  static const json fixture = json::parse(
      std::ifstream(in_tests_folder("callbacks/one_cycle_fixture.json")));
  return fixture;
}

using Rows = std::vector<std::vector<std::pair<double, double>>>;

// Returns learning rate and momentum of each layer group at each step.
Rows hypers(
    const std::function<void(Learner&)>& run,
    OptimizerFactory optimizer = {}) {
  const auto batches = fixture()["batches"].get<int64_t>();
  torch::nn::Sequential net(
      torch::nn::Linear(2, 2),
      torch::nn::Linear(2, 2),
      torch::nn::Linear(2, 2));
  Learner learn(
      point_data(4 * batches, 0, {.batch_size = 4, .workers = 0}),
      net,
      quiet({.optimizer = std::move(optimizer)}));
  learn.split({"1", "2"});
  Rows rows;
  learn.add<LambdaCallback>({.on_step = [&](Learner& l) {
    rows.emplace_back();
    for (const auto& group : l.optimizer().param_groups()) {
      rows.back().emplace_back(
          group.options().get_lr(),
          optim::momentum(group.options()));
    }
  }});
  run(learn);
  return rows;
}

struct Case {
  const char* name;
  void (*run)(Learner&);
};

class OneCycleTest : public testing::TestWithParam<Case> {};

TEST_P(OneCycleTest, SetsTheValuesOfFastai) {
  const Rows ours = hypers(GetParam().run);
  const json& theirs = fixture()[GetParam().name];
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t step = 0; step < ours.size(); ++step) {
    for (size_t group = 0; group < 3; ++group) {
      const double lr = theirs[step][group][0].get<double>();
      const double momentum = theirs[step][group][1].get<double>();
      EXPECT_NEAR(ours[step][group].first, lr, 1e-12 * lr) << step;
      EXPECT_NEAR(ours[step][group].second, momentum, 1e-12) << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules,
    OneCycleTest,
    testing::Values(
        Case{"one_cycle", [](Learner& l) { l.fit_one_cycle(3, 1e-2); }},
        Case{
            "one_cycle_slice",
            [](Learner& l) {
              l.fit_one_cycle(
                  2,
                  {1e-5, 1e-2},
                  {.div = 10,
                   .div_final = 1e3,
                   .pct_start = 0.4,
                   .moms = {0.9, 0.8, 0.92}});
            }},
        Case{
            "fine_tune",
            [](Learner& l) { l.fine_tune(2, {.base_lr = 4e-3}); }}),
    [](const auto& info) { return info.param.name; });

// The learning rate can be given in the options instead of before them.
TEST(Schedules, AcceptTheirLearningRatesAsOptions) {
  using Run = void (*)(Learner&);
  const std::vector<std::pair<Run, Run>> same = {
      {[](Learner& l) { l.fit_one_cycle(2, 2e-2, {.pct_start = 0.3}); },
       [](Learner& l) {
         l.fit_one_cycle(2, {.max_lr = 2e-2, .pct_start = 0.3});
       }},
      {[](Learner& l) {
         l.fit_one_cycle(2, {1e-5, 2e-2});
       },
       [](Learner& l) {
         l.fit_one_cycle(2, {.max_lr = {1e-5, 2e-2}});
       }},
  };
  for (const auto& [one, other] : same) EXPECT_EQ(hypers(one), hypers(other));
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit_one_cycle(1, 1e-2, {.max_lr = 1e-3}); },
      {"given twice", "options.max_lr"});
}

// flat_cos and sgdr do not change the momentum, which starts at a different
// value in fastai.
TEST(FlatCos, SetsTheLearningRatesOfFastai) {
  const Rows ours = hypers([](Learner& l) { l.fit(4, 1e-2, {flat_cos()}); });
  const json& theirs = fixture()["flat_cos"];
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t step = 0; step < ours.size(); ++step) {
    EXPECT_NEAR(ours[step][2].first, theirs[step][2][0].get<double>(), 1e-14);
  }
}

TEST(Sgdr, SetsTheLearningRatesOfFastai) {
  const Rows ours =
      hypers([](Learner& l) { l.fit(7, 1e-2, {sgdr({.cycles = 3})}); });
  const json& theirs = fixture()["sgdr"];
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t step = 0; step < ours.size(); ++step) {
    EXPECT_NEAR(ours[step][2].first, theirs[step][2][0].get<double>(), 1e-14);
  }
}

// Regression: rounding moved a restart by one step, which became a step with a
// learning rate of 0; with one batch per epoch, that was a whole epoch.
TEST(Sgdr, RestartsAtTheFirstStepOfEachCycle) {
  for (const int64_t mult : {1, 2, 3}) {
    for (const int64_t cycles : {1, 2, 3, 5, 7, 9}) {
      if (mult > 1 && cycles > 5) continue;
      for (const int64_t batches : {1, 3}) {
        int64_t epochs = 0;
        std::set<int64_t> restarts;
        for (int64_t i = 0, length = 1; i < cycles; ++i, length *= mult) {
          restarts.insert(epochs * batches);
          epochs += length;
        }
        Learner learn(
            point_data(2 * batches, 0, {.batch_size = 2, .workers = 0}),
            torch::nn::Sequential(torch::nn::Linear(2, 2)),
            quiet());
        learn.fit(epochs, 1e-2, {sgdr({.cycles = cycles, .cycle_mult = mult})});
        const auto rates = learn.recorder().learning_rates();
        ASSERT_EQ(rates.size(), static_cast<size_t>(epochs * batches));
        for (int64_t step = 0; step < epochs * batches; ++step) {
          EXPECT_EQ(rates[step] > 1e-2 * (1 - 1e-9), restarts.contains(step))
              << mult << " " << cycles << " " << batches << " " << step;
          EXPECT_GT(rates[step], 1e-8);
        }
      }
    }
  }
}

// The fixture has the weights of fastai after fine_tune, which starts both of
// its fits with new optimizer state.
TEST(FineTune, EndsWithTheWeightsOfFastai) {
  const json& theirs = fixture()["fine_tune_weights"];
  const auto tensor = [](const json& rows) {
    const auto flat = rows.get<std::vector<double>>();
    return torch::tensor(flat, torch::kDouble).to(torch::kFloat);
  };
  const auto train = [&](bool clears) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 3));
    const torch::NoGradGuard no_grad;
    size_t i = 0;
    for (torch::Tensor& p : net->parameters()) {
      p.copy_(tensor(theirs["begin"][i++]).view_as(p));
    }
    const torch::Tensor x = tensor(theirs["x"]).view({-1, 3});
    const torch::Tensor y = tensor(theirs["y"]).view({-1, 3});
    DataBunch data = DataBunch::create(
        std::make_shared<TensorDataset>(Tensors{x}, Tensors{y}),
        nullptr,
        {.batch_size = x.size(0), .workers = 0});
    data.device = torch::kCPU;
    const at::AutoGradMode with_grad(true);
    Learner learn(
        data,
        net,
        quiet(
            {.optimizer = optimizer<torch::optim::AdamW>(
                 torch::optim::AdamWOptions().betas({0.9, 0.99}).eps(1e-5)),
             .bn_weight_decay = false,  // nor weight decay of biases
             .freeze_clears_optimizer = clears}));
    learn.split({"1"}).fine_tune(6, {.freeze_epochs = 4, .base_lr = 4e-2});
    double difference = 0;
    const Tensors after = parameters_of(learn);
    for (i = 0; i < after.size(); ++i) {
      const torch::Tensor expected = tensor(theirs["end"][i]);
      difference = std::max(
          difference,
          (after[i].flatten() - expected).abs().max().item<double>());
    }
    return difference;
  };
  EXPECT_LT(train(/*clears=*/true), 1e-5);
  EXPECT_GT(train(/*clears=*/false), 1e-3);
}

TEST(FitOneCycle, HasThePresetOfFastaiV1) {
  const auto options = OneCycleOptions::v1();
  EXPECT_EQ(options.pct_start, 0.3);
  const Rows rows = hypers(
      [&](Learner& l) { l.fit_one_cycle(3, 1e-2, OneCycleOptions::v1()); });
  // Of 21 steps, the rise takes 6 whole ones.
  EXPECT_DOUBLE_EQ(rows[0][0].first, 1e-2 / 25);
  EXPECT_DOUBLE_EQ(rows[6][0].first, 1e-2);
  EXPECT_DOUBLE_EQ(rows[6][0].second, 0.85);
}

TEST(FitOneCycle, CountsOnlyTheBatchesThatLimitBatchesAllows) {
  const auto rates = [](int64_t samples, bool limited) {
    Learner learn(point_data(samples, 0), point_net(), quiet());
    if (limited) learn.add<LimitBatches>({.train = 3});
    learn.fit_one_cycle(2, 1e-2, OneCycleOptions::v1());
    return learn.recorder().learning_rates();
  };
  const auto limited = rates(8 * 32, true);
  EXPECT_EQ(limited, rates(3 * 32, false));
  EXPECT_DOUBLE_EQ(limited.at(1), 1e-2);
}

TEST(FitOneCycle, ChangesOnlyTheLearningRateIfThereIsNoMomentum) {
  const Rows rows = hypers(
      [](Learner& l) { l.fit_one_cycle(1, 1e-2); },
      optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1)));
  EXPECT_EQ(rows.size(), fixture()["batches"].get<size_t>());
}

// The first fit has no momentum, so LibTorch creates no momentum buffers.
TEST(FitOneCycle, StartsTheMomentumOfRMSprop) {
  Learner learn(
      point_data(),
      point_net(),
      quiet({.optimizer = optimizer<torch::optim::RMSprop>()}));
  learn.fit(1, 1e-3).fit_one_cycle(1, 1e-3);
  EXPECT_GT(learn.recorder().momentums().back(), 0.8);
  for (const torch::Tensor& p : parameters_of(learn)) {
    EXPECT_TRUE(p.isfinite().all().item<bool>());
  }
}

TEST(FineTune, TrainsTheLastGroupFirst) {
  const auto learn = std::make_unique<Learner>(
      point_data(),
      point_net(),
      quiet({.train_bn = false}));
  learn->split({"3"});
  std::vector<bool> trained;
  learn->add<LambdaCallback>({.on_epoch_begin = [&](Learner& l) {
    trained.push_back(l.model().parameters()[0].tensor.requires_grad());
  }});
  learn->fine_tune(2);
  EXPECT_EQ(trained, (std::vector<bool>{false, true, true}));
}

TEST(FineTune, DividesTheFirstGroupsLearningRateByLrMultAfterUnfreezing) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"3"});
  std::vector<double> ratios;  // in the last batch of each epoch
  learn.add<LambdaCallback>({.on_epoch_end = [&](Learner& l) {
    const std::vector<double> rates = l.learning_rates();
    ratios.push_back(rates[1] / rates[0]);
  }});
  learn.fine_tune(2, {.lr_mult = 20});
  ASSERT_EQ(ratios.size(), 3u);
  EXPECT_NEAR(ratios[1], 20, 1e-9);
  EXPECT_NEAR(ratios[2], 20, 1e-9);
  expect_error<c10::ValueError>(
      [&] { learn.fine_tune(1, {.lr_mult = 0}); },
      {"[Learner::fine_tune] lr_mult is 0"});
}

TEST(FineTune, SkipsTheSecondPhaseAfterAStopRequestInTheFirst) {
  Learner learn(point_data(), point_net(), quiet());
  int64_t fits = 0;
  learn.add<LambdaCallback>(
      {.on_train_begin = [&](Learner&) { ++fits; },
       .on_batch_end = [](Learner& l) { l.request_stop(); }});
  learn.fine_tune(2);
  EXPECT_EQ(fits, 1);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
}

TEST(FineTune, ChecksItsOptionsBeforeFreezingOrTraining) {
  Learner learn(point_data(), point_net(), quiet({.train_bn = false}));
  learn.split({"3"});
  const Tensors before = parameters_of(learn);
  expect_error<c10::ValueError>(
      [&] { learn.fine_tune(-1); },
      {"[Learner::fine_tune] epochs is -1"});
  expect_error<c10::ValueError>(
      [&] { learn.fine_tune(1, {.freeze_epochs = -1}); },
      {"[Learner::fine_tune] freeze_epochs is -1"});
  expect_error<c10::ValueError>(
      [&] { learn.fine_tune(1, {.pct_start = 2}); },
      {"[Learner::fine_tune] pct_start is 2"});
  expect_error<c10::ValueError>(
      [&] { learn.fine_tune(1, {.div = 0}); },
      {"[Learner::fine_tune] div is 0"});
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  for (const ModelTensor& p : learn.model().parameters()) {
    EXPECT_TRUE(p.tensor.requires_grad()) << p.name;
  }
}

TEST(Sgdr, RejectsInvalidCycles) {
  expect_error<c10::ValueError>(
      [] { sgdr({.cycles = 0}); },
      {"[sgdr] cycles is 0"});
  expect_error<c10::ValueError>(
      [] { sgdr({.cycles = 2000}); },
      {"cycles is 2000 and cycle_mult 2", "1 to 1000 cycles"});
  expect_error<c10::ValueError>(
      [] { sgdr({.cycles = 900, .cycle_mult = 9}); },
      {"cycle_mult 9", "finite length of the last cycle"});
}

TEST(Schedules, MultiplyTheLearningRatesOfEachLayerGroup) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"3"});
  learn.fit(1, {1e-3, 1e-1}, {flat_cos({.pct_start = 1})});
  EXPECT_EQ(learn.learning_rates(), (std::vector<double>{1e-3, 1e-1}));
  expect_error<c10::ValueError>(
      [] {
        ParamScheduler(
            {{HyperParameter::momentum, {schedule::constant(1)}, true}});
      },
      {"is_factor", "momentum"});
}

TEST(FitOneCycle, RejectsOptionsOutOfRange) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { learn.fit_one_cycle(1, 1e-2, {.div = 0}); },
      {"div is 0"});
  expect_error<c10::ValueError>(
      [&] { learn.fit_one_cycle(1, 1e-2, {.pct_start = 1.5}); },
      {"pct_start is 1.5"});
  expect_error<c10::ValueError>(
      [] { flat_cos({.div_final = 0}); },
      {"[flat_cos] div_final is 0"});
  expect_error<c10::ValueError>(
      [&] { learn.fine_tune(1, {.base_lr = -1}); },
      {"base_lr is -1"});
  EXPECT_FALSE(learn.state().is_fitting);
}

}  // namespace
}  // namespace tern::one_cycle_test
