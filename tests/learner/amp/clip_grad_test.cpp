#include "tern/learner/amp/clip_grad.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"

namespace tern::clip_grad_test {
namespace {

torch::Tensor with_grad(std::vector<float> grad) {
  torch::Tensor p =
      torch::zeros({static_cast<int64_t>(grad.size())}).requires_grad_();
  p.mutable_grad() = torch::tensor(grad);
  return p;
}

TEST(ClipGradNorm, ScalesAllGradientsByOneFactor) {
  const Tensors params = {with_grad({3}), with_grad({0, 4}), torch::ones({2})};
  EXPECT_FLOAT_EQ(clip_grad_norm_(params, 1).item<float>(), 5.f);
  EXPECT_NEAR(params[0].grad()[0].item<float>(), 0.6, 1e-6);
  EXPECT_NEAR(params[1].grad()[1].item<float>(), 0.8, 1e-6);
}

TEST(ClipGradNorm, LeavesSmallGradientsUnchanged) {
  const Tensors params = {with_grad({0.5})};
  clip_grad_norm_(params, 1);
  EXPECT_EQ(params[0].grad()[0].item<float>(), 0.5f);
}

TEST(ClipGradNorm, MatchesLibTorch) {
  torch::manual_seed(0);
  Tensors ours, theirs;
  for (const int64_t size : {1, 7, 100}) {
    for (Tensors* list : {&ours, &theirs}) {
      list->push_back(torch::zeros({size}).requires_grad_());
    }
    ours.back().mutable_grad() = torch::randn({size});
    theirs.back().mutable_grad() = ours.back().grad().clone();
  }
  const double norm = torch::nn::utils::clip_grad_norm_(theirs, 0.5);
  EXPECT_NEAR(clip_grad_norm_(ours, 0.5).item<double>(), norm, 1e-5);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(torch::allclose(ours[i].grad(), theirs[i].grad()));
  }
}

TEST(ClipGradNorm, SumsHalfGradientsInFloat) {
  EXPECT_FLOAT_EQ(
      joint_norm({torch::full({4}, 60000.f, torch::kHalf)}).item<float>(),
      120000.f);
}

TEST(ClipGradNorm, AcceptsNoGradientsAndRejectsAMaxNormOfZero) {
  EXPECT_EQ(clip_grad_norm_({torch::ones({2})}, 1).item<float>(), 0.f);
  EXPECT_THROW(clip_grad_norm_({}, 0), c10::ValueError);
}

TEST(ClipGradNorm, ComputesOneNormOverAllParameterGroups) {
  const Tensors params = {with_grad({3}), with_grad({4})};
  optim::SGD optimizer(
      std::vector<torch::optim::OptimizerParamGroup>{
          torch::optim::OptimizerParamGroup({params[0]}),
          torch::optim::OptimizerParamGroup({params[1]})},
      torch::optim::SGDOptions(1));
  EXPECT_FLOAT_EQ(clip_grad_norm_(optimizer, 1).item<float>(), 5.f);
  EXPECT_NEAR(params[0].grad()[0].item<float>(), 0.6, 1e-6);
  EXPECT_NEAR(params[1].grad()[0].item<float>(), 0.8, 1e-6);
}

TEST(ClipGradValue, ClampsEachElementToTheRange) {
  const Tensors params = {with_grad({-3, 0.25}), torch::ones({2})};
  clip_grad_value_(params, 0.5);
  EXPECT_TRUE(torch::equal(params[0].grad(), torch::tensor({-0.5f, 0.25f})));
  EXPECT_FALSE(params[1].grad().defined());
}

TEST(ClipGradValue, KeepsNaN) {
  const Tensors params = {with_grad({NAN, INFINITY})};
  clip_grad_value_(params, 0.5);
  EXPECT_TRUE(params[0].grad()[0].isnan().item<bool>());
  EXPECT_EQ(params[0].grad()[1].item<float>(), 0.5f);
}

TEST(ClipGradValue, RejectsALimitThatIsNotPositive) {
  expect_error<c10::ValueError>(
      [] { clip_grad_value_(Tensors{}, 0); },
      {"max_value is 0"});
}

TEST(ClipGradNorm, KeepsDoublePrecisionAndSupportsComplexGradients) {
  const auto weight = [](const torch::Tensor& grad) {
    torch::Tensor p = torch::zeros_like(grad).requires_grad_();
    p.mutable_grad() = grad.clone();
    return p;
  };
  const double third = 1.0 / 3;
  const Tensors mixed = {
      weight(torch::tensor({4 * third}, torch::kDouble)),
      with_grad({1})};
  const torch::Tensor norm = clip_grad_norm_(mixed, 0.5);
  EXPECT_EQ(norm.scalar_type(), torch::kDouble);
  EXPECT_DOUBLE_EQ(norm.item<double>(), std::sqrt(1 + 16.0 / 9));
  EXPECT_NEAR(
      mixed[0].grad().item<double>(),
      4 * third * 0.5 / (norm.item<double>() + 1e-6),
      1e-15);
  EXPECT_EQ(mixed[1].grad().scalar_type(), torch::kFloat);

  const auto complex = weight(
      torch::tensor({c10::complex<float>(3, 4), c10::complex<float>(0, 0)}));
  EXPECT_FLOAT_EQ(clip_grad_norm_(Tensors{complex}, 1).item<float>(), 5.f);
  EXPECT_NEAR(torch::real(complex.grad())[0].item<float>(), 0.6, 1e-6);
  expect_error<c10::ValueError>(
      [&] { clip_grad_value_(Tensors{complex}, 1); },
      {"[clip_grad_value_]", "[2] is complex", "by norm"});
}

TEST(ClipGradNorm, RejectsASparseGradientWithoutAnInternalMessage) {
  const auto table = torch::zeros({3, 2}).requires_grad_();
  table.mutable_grad() = torch::ones({3, 2}).to_sparse();
  for (const bool by_norm : {false, true}) {
    const std::string error = error_of<c10::ValueError>([&] {
      if (by_norm) {
        clip_grad_norm_({table}, 1);
      } else {
        clip_grad_value_({table}, 1);
      }
    });
    EXPECT_NE(error.find("[3, 2] is sparse; expected a dense"), error.npos);
    EXPECT_EQ(error.find("registered at"), error.npos);
  }
  expect_error<c10::ValueError>(
      [&] { joint_norm({table.grad()}); },
      {"[joint_norm]", "sparse"});
}

}  // namespace
}  // namespace tern::clip_grad_test
