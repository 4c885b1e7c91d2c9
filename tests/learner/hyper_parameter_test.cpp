#include "tern/learner/hyper_parameter.h"

#include <cmath>
#include <initializer_list>
#include <vector>

#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"

namespace tern::optim::hyper_parameters_test {
namespace {

TEST(HyperParameters, ReadAndSetMomentumOfEveryOptimizerThatHasIt) {
  torch::optim::SGDOptions sgd(.1);
  torch::optim::RMSpropOptions rmsprop;
  torch::optim::AdamOptions adam;
  torch::optim::AdamWOptions adamw;
  LarcOptions larc;
  for (torch::optim::OptimizerOptions* options :
       std::initializer_list<torch::optim::OptimizerOptions*>{
           &sgd,
           &rmsprop,
           &adam,
           &adamw,
           &larc}) {
    EXPECT_TRUE(has_momentum(*options));
    set_momentum(*options, .85);
    EXPECT_EQ(momentum(*options), .85);
  }
  EXPECT_EQ(sgd.momentum(), .85);
  EXPECT_EQ(adam.betas(), std::make_tuple(.85, .999));
}

TEST(HyperParameters, ReadAndSetWeightDecay) {
  torch::optim::SGDOptions sgd(.1);
  torch::optim::RMSpropOptions rmsprop;
  torch::optim::AdagradOptions adagrad;
  torch::optim::AdamOptions adam;
  torch::optim::AdamWOptions adamw;
  LarcOptions larc;
  EXPECT_EQ(weight_decay(adamw), 1e-2);
  for (torch::optim::OptimizerOptions* options :
       std::initializer_list<torch::optim::OptimizerOptions*>{
           &sgd,
           &rmsprop,
           &adagrad,
           &adam,
           &adamw,
           &larc}) {
    set_weight_decay(*options, .3);
    EXPECT_EQ(weight_decay(*options), .3);
  }
}

TEST(HyperParameters, AreZeroIfAnOptimizerLacksThem) {
  torch::optim::LBFGSOptions lbfgs;
  EXPECT_FALSE(has_momentum(lbfgs));
  EXPECT_EQ(momentum(lbfgs), 0);
  EXPECT_EQ(weight_decay(lbfgs), 0);
  set_momentum(lbfgs, 0);
  set_weight_decay(lbfgs, 0);
  using Error = c10::NotImplementedError;
  expect_error<Error>([&] { set_momentum(lbfgs, .9); }, {"0.9", "SGD"});
  expect_error<Error>(
      [&] { set_weight_decay(lbfgs, .1); },
      {"LearnerOptions::weight_decay"});
}

TEST(HyperParameters, AreCheckedForTheirRange) {
  torch::optim::SGDOptions sgd(.1);
  using Error = c10::ValueError;
  expect_error<Error>([&] { set_momentum(sgd, 1); }, {"momentum is 1"});
  expect_error<Error>([&] { set_momentum(sgd, NAN); }, {"momentum is nan"});
  expect_error<Error>([&] { set_weight_decay(sgd, -1); }, {">= 0"});
}

}  // namespace
}  // namespace tern::optim::hyper_parameters_test

namespace tern::learning_rates_test {
namespace {

using Rates = std::vector<double>;

TEST(LearningRates, ResolveLikeFastais) {
  EXPECT_EQ(LearningRates().resolve(3, 1), (Rates{1, 1, 1}));
  EXPECT_EQ(LearningRates(2.0).resolve(3, 1), (Rates{2, 2, 2}));
  EXPECT_EQ(LearningRates({1, 2}).resolve(1, 1), (Rates{2}));
  EXPECT_EQ(LearningRates({1, 2, 4}).resolve(3, 1), (Rates{1, 2, 4}));
  EXPECT_EQ(LearningRates::per_group({1, 2}).resolve(2, 1), (Rates{1, 2}));
  EXPECT_EQ(LearningRates::up_to(2).resolve(3, 1), (Rates{0.2, 0.2, 2}));
  const Rates slice = LearningRates({1e-5, 1e-3}).resolve(3, 1);
  EXPECT_NEAR(slice[1], 1e-4, 1e-18);
  EXPECT_EQ(slice[2], 1e-3);
}

TEST(LearningRates, RejectWrongCountsAndInvalidValues) {
  EXPECT_THROW(LearningRates({1, 2, 3}).resolve(2, 1), c10::ValueError);
  EXPECT_THROW(LearningRates(-1.0).resolve(1, 1), c10::ValueError);
  EXPECT_THROW(LearningRates(std::nan("")).resolve(1, 1), c10::ValueError);
  EXPECT_THROW(LearningRates({0, 1}).resolve(3, 1), c10::ValueError);
}

}  // namespace
}  // namespace tern::learning_rates_test
