#include <cmath>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::gradient_penalty_test {
namespace {

using namespace testing_support;  // NOLINT

OptimizerFactory sgd() {
  return optimizer<optim::SGD>(torch::optim::SGDOptions(0.1));
}

std::unique_ptr<Learner> learner() {
  return std::make_unique<Learner>(
      point_data(64, 0),
      point_net(),
      quiet({.optimizer = sgd(), .weight_decay = 0}));
}

TEST(GradientPenalty, AddsTheNormOfTheGradientsToTheLoss) {
  const auto learn = learner();
  learn->add<GradientPenalty>(0.5);
  int seen = 0;
  learn->add<LambdaCallback>(
      {.on_backward_begin =
           [&](Learner& l) {
             Tensors parameters;
             for (const auto& p : l.model().parameters()) {
               parameters.push_back(p.tensor);
             }
             const Tensors grads = torch::autograd::grad(
                 {l.state().loss},
                 parameters,
                 {},
                 /*retain_graph=*/true);
             double squares = 0;
             for (const auto& g : grads) {
               squares += g.square().sum().item<double>();
             }
             EXPECT_NEAR(
                 l.state().loss_grad.item<double>(),
                 l.state().loss.item<double>() + 0.5 * std::sqrt(squares),
                 1e-5);
             ++seen;
           },
       .order = callback_order::kGradientPenalty + 1});
  learn->fit(1);
  EXPECT_EQ(seen, 2);
}

TEST(GradientPenalty, IsTheSameWithAndWithoutALossScale) {
  const auto train = [](bool scaled) {
    const auto learn = learner();
    learn->to_amp(
        {.dtype = torch::kHalf,
         .scaler = GradScalerOptions{.init_scale = 1024, .enabled = scaled}});
    learn->add<GradientPenalty>(0.1).fit(3);
    return parameters_of(*learn);
  };
  const Tensors scaled = train(true), plain = train(false);
  for (size_t i = 0; i < scaled.size(); ++i) {
    EXPECT_TRUE(torch::allclose(scaled[i], plain[i], 1e-2, 1e-3)) << i;
  }
}

TEST(GradientPenalty, MakesGradientsSmaller) {
  const auto norm_after_training = [](double weight) {
    const auto learn = learner();
    if (weight > 0) learn->add<GradientPenalty>(weight);
    double norm = 0;
    learn->add<LambdaCallback>({.on_backward_begin = [&](Learner& l) {
      Tensors parameters;
      for (const auto& p : l.model().parameters()) {
        parameters.push_back(p.tensor);
      }
      norm = 0;
      for (const auto& g : torch::autograd::grad(
               {l.state().loss},
               parameters,
               {},
               /*retain_graph=*/true)) {
        norm += g.square().sum().item<double>();
      }
    }});
    learn->fit(10);
    return norm;
  };
  EXPECT_LT(norm_after_training(1.0), norm_after_training(0));
}

TEST(GradientPenalty, WorksWithGradientAccumulation) {
  const auto learn = learner();
  learn->add<GradientPenalty>(0.1)
      .add<GradientAccumulation>({.batches = 2})
      .fit(2);
  for (const auto& p : parameters_of(*learn)) {
    EXPECT_TRUE(torch::isfinite(p).all().item<bool>());
  }
}

TEST(GradientPenalty, StaysFiniteWhereTheGradientIsZero) {
  const auto learn = std::make_unique<Learner>(
      point_data(32, 0),
      point_net(),
      quiet(
          {.loss = Loss([](torch::Tensor pred, torch::Tensor) {
             return (pred * 0).sum();
           }),
           .optimizer = sgd()}));
  learn->add<GradientPenalty>().fit(1);
  for (const auto& p : parameters_of(*learn)) {
    EXPECT_TRUE(torch::isfinite(p).all().item<bool>());
  }
}

TEST(GradientPenalty, RejectsAWeightThatIsNotFinite) {
  expect_error<c10::ValueError>(
      [] { GradientPenalty penalty(NAN); },
      {"weight is nan"});
}

}  // namespace
}  // namespace tern::gradient_penalty_test
