#include "tern/vision/matting/matting_loss.h"

#include <gtest/gtest.h>

#include "tern/learner/amp/autocast.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/vision/matting/fixture.h"

namespace tern::matting_loss_test {
namespace {

using namespace testing_support;  // NOLINT

Tensors targets() {
  return {wave({2, 1, 12, 20}, 0.37, 0), wave({2, 3, 12, 20}, 0.53, 1)};
}

Tensors base_outputs() {
  return {
      wave({2, 1, 12, 20}, 0.41, 2),
      wave({2, 3, 12, 20}, 0.47, 3),
      wave({2, 1, 12, 20}, 0.29, 5)};
}

Tensors refine_outputs() {
  return {
      wave({2, 1, 12, 20}, 0.41, 2),
      wave({2, 3, 12, 20}, 0.47, 3),
      wave({2, 1, 3, 5}, 0.31, 6),
      wave({2, 3, 3, 5}, 0.31, 7),
      wave({2, 1, 3, 5}, 0.31, 8)};
}

template <class Loss>
void expect_equals_pythons(
    const Loss& loss,
    const Tensors& outputs,
    const nlohmann::json& expected) {
  for (const torch::Tensor& output : outputs) output.requires_grad_();
  const torch::Tensor value = loss(outputs, targets());
  value.backward();
  EXPECT_NEAR(value.item<double>(), expected["value"].get<double>(), 1e-5);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const torch::Tensor weights = wave(outputs[i].sizes(), 0.9, 4);
    EXPECT_NEAR(
        (outputs[i].grad() * weights).sum().item<double>(),
        expected["gradients"][i].get<double>(),
        1e-5)
        << "output " << i;
  }
}

TEST(MattingLoss, EqualsPythonForTheBaseNetwork) {
  expect_equals_pythons(
      matting_base_loss,
      base_outputs(),
      matting_fixture()["base"]);
}

TEST(MattingLoss, EqualsPythonForTheRefiner) {
  expect_equals_pythons(
      matting_refine_loss,
      refine_outputs(),
      matting_fixture()["refine"]);
}

TEST(MattingLoss, SobelEqualsKornia) {
  const auto expected = matting_fixture()["sobel"].get<std::vector<float>>();
  EXPECT_TRUE(test::all_close(
      sobel(targets()[0])[0].flatten(),
      torch::tensor(expected),
      {1e-4, 1e-6}));
}

TEST(MattingLoss, IsZeroForPerfectPredictions) {
  const Tensors truth = targets();
  const torch::Tensor err = torch::zeros_like(truth[0]);
  EXPECT_EQ(
      matting_base_loss({truth[0], truth[1], err}, truth).item<float>(),
      0);
}

TEST(MattingLoss, IgnoresTransparentForeground) {
  Tensors truth = targets(), outputs = base_outputs();
  truth[0].zero_();
  const float before = matting_base_loss(outputs, truth).item<float>();
  outputs[1] = 1 - outputs[1];
  EXPECT_EQ(matting_base_loss(outputs, truth).item<float>(), before);
}

TEST(MattingLoss, IsComputedInFp32UnderAutocast) {
  const float outside = sobel(targets()[0]).sum().item<float>();
  const AutocastGuard autocast(torch::kCPU);
  const torch::Tensor inside = sobel(targets()[0]);
  EXPECT_EQ(inside.scalar_type(), torch::kFloat);
  EXPECT_EQ(inside.sum().item<float>(), outside);
}

TEST(MattingLoss, RejectsWrongOutputsAndTargets) {
  Tensors outputs = base_outputs();
  outputs.pop_back();
  expect_error<c10::ValueError>(
      [&] { matting_base_loss(outputs, targets()); },
      {"[matting_base_loss]", "[2, 1, 12, 20] Float, [2, 3, 12, 20] Float"});
  expect_error<c10::ValueError>(
      [&] { matting_refine_loss(base_outputs(), targets()); },
      {"[matting_refine_loss]"});
  expect_error<c10::ValueError>(
      [&] { matting_base_loss(base_outputs(), {targets()[0]}); },
      {"as targets alpha"});
  expect_error<c10::ValueError>(
      [] {
        sobel(torch::zeros({3, 3}));
      },
      {"[sobel] x is [3, 3]"});
}

}  // namespace
}  // namespace tern::matting_loss_test
