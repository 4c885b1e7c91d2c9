#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/hyper_parameter.h"
#include "tern/learner/loop.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::layer_groups_test {
namespace {

using namespace testing_support;  // NOLINT

std::vector<double> rates(Learner& learn) {
  std::vector<double> all;
  for (const auto& group : learn.optimizer().param_groups()) {
    all.push_back(group.options().get_lr());
  }
  return all;
}

// point_net: "0" Linear, "1" BatchNorm, "3" Linear.
TEST(LayerGroups, ASliceGivesEachGroupItsLearningRate) {
  Learner learn(point_data(), point_net(), quiet());
  EXPECT_EQ(parts_of(learn.split({"1", "3"})).groups.size(), 3);
  learn.fit(0, {1e-4, 1e-2});
  const std::vector<double> expected = {1e-4, 1e-3, 1e-2};
  const std::vector<double> got = rates(learn);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-12);
}

TEST(LayerGroups, TheDefaultIsTheLearnersLearningRateForEveryGroup) {
  Learner learn(point_data(), point_net(), quiet({.lr = 0.5}));
  learn.split({"3"}).fit(0);
  EXPECT_EQ(rates(learn), (std::vector<double>{0.5, 0.5}));
  EXPECT_THROW(learn.fit(1, {1, 2, 3}), c10::ValueError);
}

TEST(LayerGroups, FreezeTrainsOnlyTheLastGroupAndTheNormalizationLayers) {
  Learner learn(point_data(), point_net(), quiet());
  learn.split({"1", "3"}).freeze();
  const Tensors before = parameters_of(learn);
  learn.fit(1, 1e-2);
  const Tensors after = parameters_of(learn);
  // 0.weight 0.bias 1.weight 1.bias 3.weight 3.bias
  EXPECT_TRUE(torch::equal(before[0], after[0]));
  EXPECT_TRUE(torch::equal(before[1], after[1]));
  EXPECT_FALSE(torch::equal(before[2], after[2]));
  EXPECT_FALSE(torch::equal(before[4], after[4]));
  learn.unfreeze().fit(1, 1e-2);
  EXPECT_FALSE(torch::equal(before[0], parameters_of(learn)[0]));
}

TEST(LayerGroups, ParametersThatTheProgramFrozeStayFrozen) {
  for (const bool between_fits : {false, true}) {
    auto net = point_net();
    Learner learn(point_data(), net, quiet());
    learn.split({"3"});
    if (between_fits) learn.freeze().fit(1, 1e-2).unfreeze();
    const torch::Tensor frozen = net->parameters()[0];
    frozen.requires_grad_(false);
    const torch::Tensor before = frozen.detach().clone();
    learn.unfreeze().fit(1, 1e-2);
    learn.freeze().fit(1, 1e-2);
    learn.fine_tune(1);
    EXPECT_TRUE(torch::equal(frozen, before));
    EXPECT_FALSE(frozen.requires_grad());
    for (const torch::Tensor& other : net->parameters()) {
      EXPECT_TRUE(other.is_same(frozen) || other.requires_grad());
    }
  }
}

TEST(LayerGroups, ADryRunDoesNotChangeWhichParametersTheProgramFroze) {
  auto net = point_net();
  Learner learn(point_data(), net, quiet());
  learn.split({"3"});
  net->parameters()[0].requires_grad_(false);
  learn.add<LambdaCallback>({.on_epoch_begin = [](Learner& l) {
    if (l.state().is_dry_run) l.freeze();
  }});
  learn.lr_find({.num_it = 6});
  learn.unfreeze();
  EXPECT_FALSE(net->parameters()[0].requires_grad());
  EXPECT_TRUE(net->parameters()[1].requires_grad());
}

TEST(LayerGroups, UnfreezeAllTrainsWhatTheProgramFroze) {
  auto net = point_net();
  Learner learn(point_data(), net, quiet({.unfreeze_all = true}));
  net->parameters()[0].requires_grad_(false);
  learn.unfreeze();
  EXPECT_TRUE(net->parameters()[0].requires_grad());
}

TEST(LayerGroups, FreezingClearsTheOptimizersStateUnlessDisabled) {
  for (const bool clears : {true, false}) {
    Learner learn(
        point_data(),
        point_net(),
        quiet({.freeze_clears_optimizer = clears}));
    learn.split({"3"}).fit(1);
    EXPECT_EQ(learn.optimizer().state().size(), 6u);
    for (const auto& change :
         {&Learner::freeze, &Learner::unfreeze, &Learner::freeze}) {
      (learn.*change)();
      EXPECT_EQ(learn.optimizer().state().empty(), clears);
      learn.fit(1);
    }
  }
}

TEST(LayerGroups, FrozenNormalizationLayersAreNotTrainedIfTrainBnIsFalse) {
  Learner learn(point_data(), point_net(), quiet({.train_bn = false}));
  learn.split({"1", "3"}).freeze_to(2);
  const Tensors before = parameters_of(learn);
  learn.fit(1, 1e-2);
  EXPECT_TRUE(torch::equal(before[2], parameters_of(learn)[2]));
}

TEST(LayerGroups, NormalizationLayersAndBiasesHaveNoWeightDecayIfDisabled) {
  for (const bool bn_weight_decay : {true, false}) {
    Learner learn(
        point_data(),
        point_net(),
        quiet({.weight_decay = 0.1, .bn_weight_decay = bn_weight_decay}));
    std::vector<double> decays;
    for (const auto& group : learn.optimizer().param_groups()) {
      decays.push_back(optim::weight_decay(group.options()));
    }
    EXPECT_EQ(
        decays,
        bn_weight_decay ? std::vector<double>({0.1})
                        : std::vector<double>({0.1, 0.0}));
  }
}

TEST(LayerGroups, SplitNamesAModuleThatDoesNotExist) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>([&] { learn.split({"head"}); }, {"\"head\""});
  expect_error<c10::ValueError>(
      [&] {
        learn.split({"1", "1"});
      },
      {"\"1\" is named twice"});
  expect_error<c10::ValueError>([&] { learn.split({"3", "1"}); }, {"\"1\""});
  EXPECT_EQ(parts_of(learn).groups.size(), 1);
  EXPECT_THROW(learn.freeze_to(1), c10::IndexError);
  learn.optimizer();
  EXPECT_THROW(learn.split({"3"}), c10::ValueError);
}

// All gradients are zero, so only weight decay changes weights.
Loss without_gradient() {
  return Loss(
      [](const torch::Tensor& p, const torch::Tensor&) { return p.sum() * 0; });
}

TEST(LayerGroups, TrueWeightDecayShrinksWeightsWithEveryOptimizer) {
  // Only weight decay: w *= 1 - lr * wd, twice.
  for (const OptimizerFactory& factory :
       {optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1)),
        optimizer<torch::optim::Adam>(),
        optimizer<torch::optim::AdamW>(),
        OptimizerFactory()}) {
    Learner learn(
        point_data(64, 0),
        point_net(),
        quiet(
            {.loss = without_gradient(),
             .optimizer = factory,
             .weight_decay = 0.5}));
    const Tensors before = parameters_of(learn);
    learn.fit(1, 0.1);
    const Tensors after = parameters_of(learn);
    EXPECT_TRUE(torch::allclose(after[0], before[0] * 0.95 * 0.95));
  }
}

TEST(LayerGroups, WithoutTrueWeightDecayItActsThroughTheGradient) {
  // Adam's first step has the size of the learning rate, however small the
  // gradient. Here the gradient is only weight decay, so the step is towards 0.
  Learner learn(
      point_data(32, 0),
      point_net(),
      quiet(
          {.loss = without_gradient(),
           .optimizer = optimizer<torch::optim::Adam>(),
           .weight_decay = 0.5,
           .true_weight_decay = false}));
  const Tensors before = parameters_of(learn);
  learn.fit(1, 0.01);
  EXPECT_TRUE(torch::allclose(
      parameters_of(learn)[0],
      before[0] - 0.01 * before[0].sign(),
      1e-3,
      1e-5));
}

TEST(LayerGroups, HyperParametersCanBeSetBeforeTheOptimizerExists) {
  Learner learn(point_data(), point_net(), quiet({.bn_weight_decay = false}));
  learn.split({"3"});
  loop::set_hyper_parameter(parts_of(learn), HyperParameter::lr, {0.1, 0.2});
  loop::set_hyper_parameter(
      parts_of(learn),
      HyperParameter::momentum,
      {0.5, 0.6});
  loop::set_hyper_parameter(
      parts_of(learn),
      HyperParameter::weight_decay,
      {0.3, 0.4});
  EXPECT_TRUE(
      optim::has_momentum(learn.optimizer().param_groups().at(0).options()));
  // Each layer group has two parameter groups; the second has no weight decay.
  const auto& groups = learn.optimizer().param_groups();
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[1].options().get_lr(), 0.1);
  EXPECT_EQ(groups[2].options().get_lr(), 0.2);
  EXPECT_EQ(optim::momentum(groups[3].options()), 0.6);
  EXPECT_EQ(optim::weight_decay(groups[0].options()), 0.3);
  EXPECT_EQ(optim::weight_decay(groups[1].options()), 0);
  EXPECT_EQ(learn.learning_rates(), (std::vector<double>{0.1, 0.2}));
  expect_error<c10::ValueError>(
      [&] {
        loop::set_hyper_parameter(parts_of(learn), HyperParameter::lr, {1});
      },
      {"1 values of lr", "2 layer groups"});
}

TEST(LayerGroups, WithoutTrueWeightDecayEachOptimizerDecaysInItsOwnWay) {
  // The gradient is zero, so only weight decay changes weights. AdamW scales
  // the weights; all others add weight decay to the gradient.
  struct Case {
    const char* name;
    OptimizerFactory factory;
    bool is_decoupled;
  };
  const Case cases[] = {
      {"AdamW", optimizer<optim::AdamW>(), true},
      {"torch AdamW", optimizer<torch::optim::AdamW>(), true},
      {"Adam", optimizer<optim::Adam>(), false},
      {"torch Adam", optimizer<torch::optim::Adam>(), false},
      {"default", {}, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    Learner learn(
        point_data(32, 0),
        point_net(),
        quiet(
            {.loss = without_gradient(),
             .optimizer = c.factory,
             .weight_decay = 0.5,
             .true_weight_decay = false}));
    const torch::Tensor before = parameters_of(learn)[0];
    learn.fit(1, 0.01);
    const torch::Tensor expected =
        c.is_decoupled ? before * 0.995 : before - 0.01 * before.sign();
    EXPECT_TRUE(torch::allclose(parameters_of(learn)[0], expected, 1e-3, 1e-5));
  }
}

// A custom optimizer whose steps need state that its constructor creates.
struct CountsSteps final : torch::optim::SGD {
  struct Count final : torch::optim::OptimizerCloneableParamState<Count> {
    int64_t steps = 0;
  };
  using SGD::SGD;
  explicit CountsSteps(std::vector<torch::optim::OptimizerParamGroup> groups)
      : SGD(std::move(groups), torch::optim::SGDOptions(0.1)) {
    for (const torch::Tensor& p : optim::parameters_of(*this)) {
      state_[p.unsafeGetTensorImpl()] = std::make_unique<Count>();
    }
  }
  torch::Tensor step(LossClosure) override {
    for (const torch::Tensor& p : optim::parameters_of(*this)) {
      ++static_cast<Count&>(*state_.at(p.unsafeGetTensorImpl())).steps;
    }
    return {};
  }
  int64_t steps() { return static_cast<Count&>(*state_.begin()->second).steps; }
};

TEST(LayerGroups, FreezingResetsStateThatTheConstructorCreates) {
  Learner counts(
      point_data(),
      point_net(),
      quiet(
          {.optimizer =
               [](std::vector<torch::optim::OptimizerParamGroup> groups) {
                 return std::make_unique<CountsSteps>(std::move(groups));
               },
           .weight_decay = 0}));
  counts.split({"3"}).fit(1);
  auto& optimizer_now = dynamic_cast<CountsSteps&>(counts.optimizer());
  EXPECT_EQ(optimizer_now.steps(), 8);
  counts.freeze().fit(1);
  EXPECT_EQ(&counts.optimizer(), &optimizer_now);
  EXPECT_EQ(optimizer_now.steps(), 8);

  // Its state equals the state of an optimizer without a step.
  const auto adagrad = [] {
    auto learn = std::make_unique<Learner>(
        point_data(),
        point_net(),
        quiet(
            {.optimizer = optimizer<torch::optim::Adagrad>(
                 torch::optim::AdagradOptions().initial_accumulator_value(
                     0.5))}));
    learn->split({"3"});
    return learn;
  };
  const auto frozen = adagrad(), fresh = adagrad();
  frozen->fit(1);
  fresh->load_state_dict(frozen->state_dict());
  fresh->data().train->epoch(0);
  frozen->freeze();
  fresh->freeze();
  const auto sum_of = [](Learner& learn) {
    const torch::Tensor p = learn.optimizer().param_groups()[1].params()[0];
    return static_cast<torch::optim::AdagradParamState&>(
               *learn.optimizer().state().at(p.unsafeGetTensorImpl()))
        .sum();
  };
  EXPECT_TRUE(torch::equal(sum_of(*frozen), sum_of(*fresh)));
  frozen->fit(1, 1e-2);
  frozen->unfreeze().fit(1, 1e-2);
}

}  // namespace
}  // namespace tern::layer_groups_test
