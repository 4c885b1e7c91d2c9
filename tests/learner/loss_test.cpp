#include "tern/learner/loss.h"

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"

namespace tern {
namespace {

const torch::Tensor kPred = torch::tensor({{2.f, 0.f}, {0.f, 1.f}});
const torch::Tensor kClass = torch::tensor({0, 0});

TEST(Loss, IsMadeFromModulesAndFunctions) {
  const double expected =
      torch::nn::functional::cross_entropy(kPred, kClass).item<double>();
  const Loss module = torch::nn::CrossEntropyLoss();
  EXPECT_DOUBLE_EQ(module({kPred}, {kClass}).item<double>(), expected);
  EXPECT_EQ(module.activation(), Activation::softmax);
  const Loss l1 = torch::nn::L1Loss();
  EXPECT_FLOAT_EQ(l1({kPred}, {torch::zeros({2, 2})}).item<float>(), 0.75f);
  const Loss two = [](const torch::Tensor& p, const torch::Tensor& t) {
    return (p - t).sum();
  };
  EXPECT_FLOAT_EQ(two({kPred}, {torch::zeros({2, 2})}).item<float>(), 3.f);
  const Loss many = [](const Tensors& outputs, const Tensors& targets) {
    return outputs[0].sum() + outputs[1].sum() + targets[0].sum();
  };
  EXPECT_FLOAT_EQ(many({kPred, kPred}, {kClass}).item<float>(), 6.f);
}

TEST(Loss, SuitsTheTargetsWhenNoneIsGiven) {
  EXPECT_EQ(Loss::for_targets({kClass}).activation(), Activation::softmax);
  EXPECT_EQ(Loss::for_targets({kPred}).activation(), Activation::none);
  EXPECT_THROW(Loss::for_targets({}), c10::ValueError);
}

TEST(Loss, MakesAOneElementLossAScalar) {
  const Loss loss = [](const torch::Tensor& p, const torch::Tensor&) {
    return p.sum().reshape({1});
  };
  EXPECT_EQ(loss({kPred}, {kClass}).dim(), 0);
}

TEST(Loss, NamesTheClassThatIsOutOfRange) {
  const Loss loss = torch::nn::CrossEntropyLoss();
  loss.check_class_indices({kPred}, {torch::tensor({0, 1, -100})});
  expect_error<c10::IndexError>(
      [&] {
        loss.check_class_indices({kPred}, {torch::tensor({1, 2})});
      },
      {"target 1", "class 2", "0 to 1"});
  expect_error<c10::IndexError>(
      [&] { loss.check_class_indices({kPred}, {torch::tensor({-1})}); },
      {"class -1"});
}

TEST(Loss, RefusesTheWrongNumberOfTensorsAndALossThatIsNoScalar) {
  const Loss loss = torch::nn::MSELoss();
  expect_error<c10::ValueError>(
      [&] {
        loss({kPred, kPred}, {kPred});
      },
      {"2 outputs", "1 targets"});
  const Loss vector = [](const torch::Tensor& p, const torch::Tensor&) {
    return p;
  };
  expect_error<c10::ValueError>([&] { vector({kPred}, {kPred}); }, {"[2, 2]"});
}

TEST(Activate, TurnsOutputsIntoProbabilities) {
  EXPECT_TRUE(torch::allclose(
      activate(kPred.to(torch::kBFloat16), Activation::softmax),
      kPred.softmax(1),
      1e-2,
      1e-2));
  EXPECT_TRUE(
      torch::equal(activate(kPred, Activation::sigmoid), kPred.sigmoid()));
  EXPECT_TRUE(torch::equal(activate(kPred, Activation::exp), kPred.exp()));
  EXPECT_TRUE(torch::equal(activate(kPred, Activation::none), kPred));
}

}  // namespace
}  // namespace tern
