#include "tern/learner/losses/losses.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tests_folder.h"

namespace tern::losses_test {
namespace {

torch::Tensor tensor_of(
    const nlohmann::json& values,
    std::vector<int64_t> shape) {
  return torch::tensor(values.get<std::vector<double>>(), torch::kDouble)
      .view(shape);
}

Loss loss_of(const std::string& name, const torch::Tensor& weight) {
  if (name == "smooth 0.1") return label_smoothing_cross_entropy();
  if (name == "smooth 0.3") return label_smoothing_cross_entropy(0.3);
  if (name == "focal 2") return focal_loss();
  if (name == "focal 0.5") return focal_loss({.gamma = 0.5});
  if (name == "focal 2 weighted") return focal_loss({.weight = weight});
  if (name == "dice ce") return dice_ce_loss();
  if (name == "dice alone") return dice_ce_loss({.lambda_ce = 0});
  if (name == "dice ce ignoring") return dice_ce_loss({.ignore_index = 2});
  EXPECT_EQ(name, "dice ce weighted");
  return dice_ce_loss({.lambda_dice = 0.5, .lambda_ce = 2, .weight = weight});
}

// losses_fixture.py writes the expected values.
TEST(Losses, MatchFastais) {
  const auto fixture = nlohmann::json::parse(
      std::ifstream(in_tests_folder("learner/losses/losses_fixture.json")));
  const torch::Tensor weight = tensor_of(fixture["weight"], {-1});
  for (const auto& c : fixture["cases"]) {
    const auto shape = c["shape"].get<std::vector<int64_t>>();
    std::vector<int64_t> target_shape = shape;
    target_shape.erase(target_shape.begin() + 1);
    const torch::Tensor pred = tensor_of(c["pred"], shape).requires_grad_();
    const torch::Tensor target =
        tensor_of(c["target"], target_shape).to(torch::kLong);
    const std::string name = c["name"];
    const Loss loss = loss_of(name, weight);
    const torch::Tensor value = loss({pred}, {target});
    value.backward();
    EXPECT_NEAR(value.item<double>(), c["loss"].get<double>(), 1e-12) << name;
    EXPECT_TRUE(
        torch::allclose(pred.grad(), tensor_of(c["grad"], shape), 1e-10, 1e-13))
        << name;
    const torch::Tensor each = loss.per_sample({pred}, {target});
    EXPECT_EQ(each.sizes().vec(), std::vector<int64_t>{shape[0]}) << name;
    // The mean over samples equals the loss if all pixels have the same weight.
    if (name != "dice ce weighted" && name != "dice ce ignoring") {
      EXPECT_NEAR(each.mean().item<double>(), c["loss"].get<double>(), 1e-12)
          << name;
    }
    EXPECT_EQ(loss.activation(), Activation::softmax);
    expect_error<c10::IndexError>(
        [&] { loss.check_class_indices({pred}, {target + 5}); },
        {"0 to 4"});
  }
}

TEST(Losses, DiceCrossEntropyNeedsPixels) {
  const Loss loss = dice_ce_loss();
  EXPECT_EQ(loss.name(), "DiceCELoss");
  const torch::Tensor targets = torch::zeros({2, 4, 4}, torch::kLong);
  EXPECT_GT(
      loss({torch::randn({2, 3, 4, 4}, torch::kBFloat16)}, {targets})
          .item<double>(),
      0);
  expect_error<c10::ValueError>(
      [&] {
        loss({torch::randn({2, 3})}, {targets});
      },
      {"[2, 3] Float", "at least two classes"});
  expect_error<c10::ValueError>(
      [&] {
        loss({torch::randn({2, 1, 4, 4})}, {targets});
      },
      {"[2, 1, 4, 4]"});
}

TEST(Losses, WithoutCountedTargetsAreZeroWithZeroGradient) {
  const torch::Tensor pixels = torch::full({2, 4, 4}, -100, torch::kLong);
  const torch::Tensor weight = torch::tensor({1.f, 0.f, 1.f});
  for (const Loss& loss :
       {focal_loss(),
        focal_loss({.gamma = 0.5}),
        dice_ce_loss(),
        dice_ce_loss({.smooth = 0}),
        dice_ce_loss({.lambda_dice = 0, .weight = weight})}) {
    const torch::Tensor pred = torch::randn({2, 3, 4, 4}).requires_grad_();
    const torch::Tensor value = loss({pred}, {pixels});
    EXPECT_EQ(value.item<float>(), 0);
    (value * 65536).backward();
    EXPECT_EQ(pred.grad().abs().max().item<float>(), 0);
  }
  // Only a class with weight 0.
  const Loss loss = dice_ce_loss({.lambda_dice = 0, .weight = weight});
  const torch::Tensor pred = torch::randn({2, 3, 4, 4}).requires_grad_();
  (loss({pred}, {torch::ones({2, 4, 4}, torch::kLong)}) * 65536).backward();
  EXPECT_EQ(pred.grad().abs().max().item<float>(), 0);
}

TEST(Losses, ExcludeIgnoredSamplesFromTheirMeans) {
  torch::manual_seed(1);
  const torch::Tensor pred = torch::randn({4, 3, 4, 4});
  torch::Tensor target = torch::randint(3, {4, 4, 4}, torch::kLong);
  target.narrow(0, 2, 2).fill_(-100);
  for (const Loss& loss : {focal_loss(), dice_ce_loss()}) {
    EXPECT_FLOAT_EQ(
        loss({pred}, {target}).item<float>(),
        loss({pred.narrow(0, 0, 2)}, {target.narrow(0, 0, 2)}).item<float>());
  }
}

// The cross-entropy of a certain prediction is 0, where the power has no finite
// gradient.
TEST(Losses, OfACertainPredictionHaveAFiniteGradient) {
  const torch::Tensor pred = torch::tensor({{200.f, 0.f}}).requires_grad_();
  focal_loss({.gamma = 0.5})({pred}, {torch::tensor({0})}).backward();
  EXPECT_TRUE(pred.grad().isfinite().all().item<bool>());
}

TEST(Losses, PointsLossCountsVisiblePoints) {
  const torch::Tensor pred =
      torch::tensor({1.f, 2.f, 3.f, 4.f, 5.f, 6.f, 7.f, 8.f})
          .view({2, 2, 2})
          .requires_grad_();
  torch::Tensor places = torch::zeros({2, 2, 2});
  places[1][1].fill_(std::nanf(""));
  const torch::Tensor visible =
      torch::tensor({true, false, true, false}).view({2, 2});
  const Loss loss = points_loss();
  const torch::Tensor value = loss({pred}, {places, visible});
  EXPECT_FLOAT_EQ(value.item<float>(), (1.5f + 5.5f) / 2);
  value.backward();
  EXPECT_TRUE(torch::equal(
      pred.grad().view({-1}),
      torch::tensor({0.25f, 0.25f, 0.f, 0.f, 0.25f, 0.25f, 0.f, 0.f})));
  EXPECT_EQ(loss.count({pred}, {places, visible}), 2);
  const torch::Tensor none = torch::zeros({2, 2}, torch::kBool);
  EXPECT_EQ(loss({pred}, {places, none}).item<float>(), 0);
  EXPECT_EQ(loss.count({pred}, {places, none}), 0);
  expect_error<c10::ValueError>(
      [&] {
        loss({pred.view({2, 4})}, {places, visible});
      },
      {"[points_loss] the outputs are [2, 4]", "HeadOptions::points"});
}

TEST(Losses, RejectOptionsOutOfRange) {
  expect_error<c10::ValueError>(
      [] { dice_ce_loss({.lambda_dice = 0, .lambda_ce = 0}); },
      {"at least one lambda above 0"});
  expect_error<c10::ValueError>(
      [] { dice_ce_loss({.smooth = -1}); },
      {"smooth -1"});
  expect_error<c10::ValueError>(
      [] { label_smoothing_cross_entropy(1.1); },
      {"eps is 1.1"});
  expect_error<c10::ValueError>(
      [] { focal_loss({.gamma = -1.0}); },
      {"gamma is -1"});
}

}  // namespace
}  // namespace tern::losses_test
