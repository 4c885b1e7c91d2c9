// GradScaler with optimizers that read scaled gradients and the overflow flag
// themselves.

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/optim/adam.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tolerance.h"

namespace tern::grad_scaler_amp_aware_test {
namespace {

using test::bit_equal;

torch::Tensor vector(torch::ArrayRef<float> values) {
  return torch::tensor(values);
}

class GradScalerAmpAware : public testing::Test {
 protected:
  torch::Tensor p = vector({1, 2, 3}).requires_grad_();
  optim::SGD optimizer{{p}, torch::optim::SGDOptions(1)};
  GradScaler scaler{{.device = torch::kCPU, .init_scale = 4}};
};

TEST_F(GradScalerAmpAware, StepsWithoutUnscalingAndWithoutAHostRead) {
  scaler.scale(p.sum()).backward();
  test::HostReads reads;
  EXPECT_EQ(scaler.step(optimizer), StepResult::unknown);
  scaler.update();
  EXPECT_EQ(reads.count(), 0);
  EXPECT_TRUE(bit_equal(p, vector({0, 1, 2})));
  EXPECT_TRUE(bit_equal(p.grad(), vector({4, 4, 4})));
  EXPECT_EQ(scaler.growth_tracker(), 1);
}

TEST_F(GradScalerAmpAware, SkipsOnTheDeviceAndLeavesGradientsUnchanged) {
  optim::Adam adam({p});
  scaler.scale(torch::ones({}));
  p.mutable_grad() = vector({INFINITY, 4, 4});
  EXPECT_EQ(scaler.step(adam), StepResult::unknown);
  EXPECT_EQ(scaler.found_inf(adam).item<float>(), 1);
  scaler.update();
  EXPECT_TRUE(bit_equal(p, vector({1, 2, 3})));
  EXPECT_TRUE(bit_equal(p.grad(), vector({INFINITY, 4, 4})));
  const auto& state = static_cast<optim::AdamParamState&>(
      *adam.state().at(p.unsafeGetTensorImpl()));
  EXPECT_TRUE(bit_equal(state.moments[0], torch::zeros({3})));
  EXPECT_TRUE(bit_equal(state.moments[1], torch::zeros({3})));
  EXPECT_EQ(state.step.item<float>(), 0);
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.consecutive_skips(), 1);
}

TEST_F(GradScalerAmpAware, StepsOnGradientsThatAreAlreadyUnscaled) {
  scaler.scale(p.sum()).backward();
  scaler.unscale_(optimizer);
  EXPECT_TRUE(bit_equal(p.grad(), vector({1, 1, 1})));
  scaler.step(optimizer);
  scaler.update();
  EXPECT_TRUE(bit_equal(p, vector({0, 1, 2})));
  EXPECT_TRUE(bit_equal(p.grad(), vector({1, 1, 1})));
}

// Gradients are (3, 0, 4) times the scale: norm 5, clipped to 1.
TEST_F(GradScalerAmpAware, ClipsInTheStepWithoutAHostRead) {
  scaler.scale((p * vector({3, 0, 4})).sum()).backward();
  test::HostReads reads;
  EXPECT_EQ(scaler.step_clipped(optimizer, 1), StepResult::unknown);
  scaler.update();
  EXPECT_EQ(reads.count(), 0);
  EXPECT_TRUE(p.allclose(vector({1 - .6F, 2, 3 - .8F}), 1e-5));
  EXPECT_TRUE(bit_equal(p.grad(), vector({12, 0, 16})));
  EXPECT_EQ(scaler.growth_tracker(), 1);
}

TEST_F(GradScalerAmpAware, ChangesNoBitIfThereIsNothingToClip) {
  scaler.scale(p.sum()).backward();
  scaler.step_clipped(optimizer, 100);
  EXPECT_TRUE(bit_equal(p, vector({0, 1, 2})));
}

TEST_F(GradScalerAmpAware, SkipsIfTheNormIsNotFinite) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    scaler.scale(torch::ones({}));
    p.mutable_grad() = vector({bad, 4, 4});
    scaler.step_clipped(optimizer, 1);
    EXPECT_EQ(scaler.found_inf(optimizer).item<float>(), 1);
    scaler.update();
    EXPECT_TRUE(bit_equal(p, vector({1, 2, 3})));
  }
  EXPECT_EQ(scaler.get_scale(), 0.5);
}

TEST_F(GradScalerAmpAware, ClipsEvenIfDisabled) {
  GradScaler disabled({.device = torch::kCPU, .enabled = false});
  (p * vector({3, 0, 4})).sum().backward();
  EXPECT_EQ(disabled.step_clipped(optimizer, 1), StepResult::stepped);
  EXPECT_TRUE(p.allclose(vector({1 - .6F, 2, 3 - .8F}), 1e-5));
}

TEST_F(GradScalerAmpAware, RejectsClippingThatItCannotDo) {
  scaler.scale(p.sum()).backward();
  expect_error<c10::ValueError>(
      [&] { scaler.step_clipped(optimizer, 0); },
      {"max_norm is 0"});
  torch::optim::SGD plain({p}, torch::optim::SGDOptions(1));
  expect_error<c10::ValueError>(
      [&] { scaler.step_clipped(plain, 1); },
      {"call unscale_, clip_grad_norm_ and step"});
  scaler.unscale_(optimizer);
  expect_error<c10::Error>(
      [&] { scaler.step_clipped(optimizer, 1); },
      {"after unscale_()"});
}

TEST_F(GradScalerAmpAware, MultipliesItsScaleWithTheOptimizersOwnScale) {
  optimizer.grad_scale(torch::tensor(2.f));
  scaler.scale(p.sum()).backward();
  scaler.step(optimizer);
  EXPECT_TRUE(bit_equal(p, vector({.5, 1.5, 2.5})));
}

TEST_F(GradScalerAmpAware, ChecksTheOrderOfCalls) {
  scaler.scale(p.sum()).backward();
  scaler.step(optimizer);
  expect_error<c10::Error>(
      [&] { scaler.step(optimizer); },
      {"step() has already been called"});
  scaler.update();
  optimizer.zero_grad();
  expect_error<c10::Error>(
      [&] { scaler.step(optimizer); },
      {"No inf checks were recorded for this optimizer"});
}

TEST_F(GradScalerAmpAware, StepsMasterWeightsFromHalfGradients) {
  const auto weight = torch::ones({2}, torch::kHalf).requires_grad_();
  const auto master = torch::ones({2});
  optim::SGD masters({master}, torch::optim::SGDOptions(1));
  masters.set_weights({master}, {weight});
  scaler.scale(weight.sum()).backward();
  expect_error<c10::ValueError>(
      [&] { scaler.unscale_(masters); },
      {"Attempting to unscale FP16 gradients", "move_gradients_to_masters"});
  scaler.step(masters);
  scaler.update();
  EXPECT_TRUE(bit_equal(master, torch::zeros({2})));
  EXPECT_TRUE(bit_equal(weight, torch::zeros({2}, torch::kHalf)));

  // To clip, unscale in fp32.
  weight.mutable_grad() = torch::full({2}, 4, torch::kHalf);
  masters.move_gradients_to_masters();
  scaler.unscale_(masters);
  EXPECT_TRUE(bit_equal(master.grad(), torch::ones({2})));
  scaler.step(masters);
  EXPECT_TRUE(bit_equal(weight, torch::full({2}, -1, torch::kHalf)));

  // An overflow changes neither master nor weight.
  scaler.update();
  masters.zero_grad();
  weight.mutable_grad() = torch::full({2}, INFINITY, torch::kHalf);
  scaler.step(masters);
  scaler.update();
  EXPECT_TRUE(bit_equal(master, torch::full({2}, -1.f)));
  EXPECT_TRUE(bit_equal(weight, torch::full({2}, -1, torch::kHalf)));
}

}  // namespace
}  // namespace tern::grad_scaler_amp_aware_test
