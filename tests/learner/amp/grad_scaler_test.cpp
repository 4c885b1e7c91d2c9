#include "tern/learner/amp/grad_scaler.h"

#include <cmath>
#include <optional>
#include <sstream>

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tolerance.h"
#include "tern/tests/support/warnings.h"

namespace tern::grad_scaler_test {
namespace {

using test::bit_equal;
using torch::optim::SGD;

GradScalerOptions cpu(double init_scale = 4) {
  return {.device = torch::kCPU, .init_scale = init_scale};
}

torch::Tensor vector(torch::ArrayRef<float> values) {
  return torch::tensor(values);
}

// The parameter [1, 2, 3], SGD with lr 1, and a scaler with scale 4 on the CPU.
class GradScalerTest : public testing::Test {
 protected:
  void backward() { scaler.scale(p.sum()).backward(); }
  void set_grad(torch::ArrayRef<float> values) {
    p.mutable_grad() = vector(values);
  }

  torch::Tensor p = vector({1, 2, 3}).requires_grad_();
  SGD optimizer{{p}, torch::optim::SGDOptions(1)};
  GradScaler scaler{cpu()};
};

// ---- Construction ----

TEST_F(GradScalerTest, HasPyTorchsDefaults) {
  const GradScaler fresh({.device = torch::kCPU});
  EXPECT_EQ(fresh.get_scale(), 65536);
  EXPECT_EQ(fresh.get_growth_factor(), 2);
  EXPECT_EQ(fresh.get_backoff_factor(), 0.5);
  EXPECT_EQ(fresh.get_growth_interval(), 2000);
  EXPECT_EQ(fresh.growth_tracker(), 0);
  EXPECT_TRUE(fresh.is_enabled());
}

TEST_F(GradScalerTest, RejectsOptionsOutOfRange) {
  const auto make = [](auto change, bool enabled = true) {
    GradScalerOptions options = cpu();
    options.enabled = enabled;
    change(options);
    return GradScaler(options);
  };
  const auto growth = [](auto& o) { o.growth_factor = 1; };
  const auto backoff = [](auto& o) { o.backoff_factor = 1; };
  using Error = c10::ValueError;
  expect_error<Error>([&] { make(growth); }, {"growth factor must be > 1.0"});
  expect_error<Error>([&] { make(backoff); }, {"backoff factor must be < 1.0"});
  expect_error<Error>(
      [&] { make([](auto& o) { o.backoff_factor = 0; }); },
      {"> 0"});
  expect_error<Error>(
      [&] { make([](auto& o) { o.growth_interval = 0; }); },
      {">= 1"});
  for (const double scale : {0., -1., double{INFINITY}, double{NAN}, 1e39}) {
    expect_error<Error>(
        [&] { make([&](auto& o) { o.init_scale = scale; }); },
        {"init_scale"});
  }
  expect_error<Error>(
      [&] { make([](auto& o) { o.min_scale = 2, o.max_scale = 1; }); },
      {"min_scale"});
  EXPECT_NO_THROW(make(growth, false));
  EXPECT_NO_THROW(make(backoff, false));
}

TEST_F(GradScalerTest, IsDisabledForCudaWithoutADevice) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a CUDA device";
  const GradScaler cuda;
  EXPECT_FALSE(cuda.is_enabled());
}

// ---- The order of calls ----

TEST_F(GradScalerTest, RejectsEveryCallBeforeScale) {
  using Error = c10::Error;
  expect_error<Error>(
      [&] { scaler.step(optimizer); },
      {"step was called before scale()"});
  expect_error<Error>(
      [&] { scaler.unscale_(optimizer); },
      {"unscale_ was called before scale()"});
  expect_error<Error>(
      [&] { scaler.update(); },
      {"update was called before scale()"});
  expect_error<Error>(
      [&] { scaler.update(2.0); },
      {"update was called before scale()"});
}

TEST_F(GradScalerTest, RejectsUpdateWithoutAStep) {
  backward();
  expect_error<c10::Error>(
      [&] { scaler.update(); },
      {"No inf checks were recorded prior to update"});
}

TEST_F(GradScalerTest, RejectsASecondUnscale) {
  backward();
  scaler.unscale_(optimizer);
  expect_error<c10::Error>(
      [&] { scaler.unscale_(optimizer); },
      {"already been called on this optimizer since the last update"});
}

TEST_F(GradScalerTest, RejectsUnscaleAfterTheStep) {
  backward();
  scaler.step(optimizer);
  expect_error<c10::Error>(
      [&] { scaler.unscale_(optimizer); },
      {"being called after step"});
}

TEST_F(GradScalerTest, RejectsASecondStep) {
  backward();
  scaler.step(optimizer);
  expect_error<c10::Error>(
      [&] { scaler.step(optimizer); },
      {"step() has already been called"});
}

TEST_F(GradScalerTest, AcceptsTheSameCallsAgainAfterUpdate) {
  for (int i = 0; i < 2; ++i) {
    backward();
    scaler.unscale_(optimizer);
    scaler.step(optimizer);
    scaler.update();
  }
  backward();
  scaler.unscale_(optimizer);
  scaler.update();  // legal without a step
}

TEST_F(GradScalerTest, RejectsAStepWithoutAnyGradient) {
  scaler.scale(torch::ones({}));
  scaler.unscale_(optimizer);
  expect_error<c10::Error>(
      [&] { scaler.step(optimizer); },
      {"No inf checks were recorded for this optimizer"});
  expect_error<c10::Error>(
      [&] { scaler.update(); },
      {"No inf checks were recorded prior to update"});
}

TEST_F(GradScalerTest, DoesNotSupportLbfgsUnlessDisabled) {
  torch::optim::LBFGS lbfgs({p});
  backward();
  expect_error<c10::Error>(
      [&] { scaler.step(lbfgs); },
      {"Closure use is not currently supported if GradScaler is enabled"});
}

TEST_F(GradScalerTest, AcceptsANewOptimizerAtAnOldAddress) {
  std::optional<SGD> slot;
  slot.emplace(Tensors{p}, torch::optim::SGDOptions(1));
  backward();
  scaler.step(*slot);
  scaler.update();
  slot.emplace(Tensors{p}, torch::optim::SGDOptions(1));
  EXPECT_EQ(scaler.step(*slot), StepResult::stepped);
  slot.emplace(Tensors{p}, torch::optim::SGDOptions(1));
  scaler.forget(*slot);
  EXPECT_EQ(scaler.step(*slot), StepResult::stepped);
}

// ---- Values ----

TEST_F(GradScalerTest, StepsOnFiniteGradients) {
  backward();
  EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
  scaler.update();
  EXPECT_TRUE(bit_equal(p, vector({0, 1, 2})));
  EXPECT_TRUE(bit_equal(p.grad(), vector({1, 1, 1})));
  EXPECT_EQ(scaler.get_scale(), 4);
  EXPECT_EQ(scaler.growth_tracker(), 1);
}

TEST_F(GradScalerTest, SkipsTheStepAndHalvesTheScaleAfterAnOverflow) {
  scaler.scale(torch::ones({}));
  set_grad({NAN, 4, 8});
  EXPECT_EQ(scaler.step(optimizer), StepResult::skipped);
  EXPECT_NE(scaler.found_inf(optimizer).item<float>(), 0);
  scaler.update();
  EXPECT_TRUE(bit_equal(p, vector({1, 2, 3})));
  EXPECT_TRUE(std::isnan(p.grad()[0].item<float>()));
  EXPECT_TRUE(bit_equal(p.grad().slice(0, 1), vector({1, 2})));
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST_F(GradScalerTest, GrowsAfterTheIntervalAndBacksOff) {
  GradScalerOptions options = cpu();
  options.backoff_factor = .25;
  options.growth_interval = 2;
  scaler = GradScaler(options);
  std::vector<std::pair<double, int64_t>> trace;
  for (const float grad : {1.f, 1.f, 1.f, INFINITY}) {
    scaler.scale(torch::ones({}));
    set_grad({grad, 1, 1});
    scaler.step(optimizer);
    scaler.update();
    trace.emplace_back(scaler.get_scale(), scaler.growth_tracker());
  }
  const std::vector<std::pair<double, int64_t>> expected = {
      {4, 1},
      {8, 0},
      {8, 1},
      {2, 0}};
  EXPECT_EQ(trace, expected);
}

TEST_F(GradScalerTest, NeverGrowsToInfinity) {
  GradScalerOptions options = cpu(std::ldexp(1., 127));
  options.growth_interval = 1;
  scaler = GradScaler(options);
  scaler.scale(torch::ones({}));
  set_grad({1, 1, 1});
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), std::ldexp(1., 127));
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST_F(GradScalerTest, StaysBetweenMinScaleAndMaxScale) {
  GradScalerOptions options = cpu(4);
  options.growth_interval = 1;
  options.min_scale = 2;
  options.max_scale = 8;
  scaler = GradScaler(options);
  std::vector<double> scales;
  for (const float grad : {1.f, 1.f, NAN, NAN, NAN}) {
    scaler.scale(torch::ones({}));
    set_grad({grad, 1, 1});
    scaler.step(optimizer);
    scaler.update();
    scales.push_back(scaler.get_scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 8, 4, 2, 2}));
}

TEST_F(GradScalerTest, AcceptsANewScale) {
  backward();
  scaler.step(optimizer);
  scaler.update();
  scaler.update(8.0);
  EXPECT_EQ(scaler.get_scale(), 8);
  auto two = vector({2});
  scaler.update(two);
  two.fill_(100);
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.growth_tracker(), 1);
  for (const auto& wrong :
       {vector({1, 2}),
        vector({1}).requires_grad_(),
        torch::ones({1}, torch::kLong)}) {
    expect_error<c10::ValueError>(
        [&] { scaler.update(wrong); },
        {"new_scale should be"});
  }
  expect_error<c10::ValueError>(
      [&] { scaler.update(double{NAN}); },
      {"new_scale should be"});
}

TEST_F(GradScalerTest, InvertsTheScaleInDoubleAndRoundsOnce) {
  for (const double scale : {3., 1000., 65536., 7e-3}) {
    GradScaler each(cpu(scale));
    each.scale(torch::ones({}));
    set_grad({1, 1, 1});
    each.unscale_(optimizer);
    const auto expected =
        static_cast<float>(1. / static_cast<double>(static_cast<float>(scale)));
    EXPECT_TRUE(bit_equal(p.grad(), torch::full({3}, expected)));
  }
}

// ---- Outputs and gradients of all kinds ----

TEST_F(GradScalerTest, KeepsTheStructureOfNestedOutputs) {
  GradScaler eight(cpu(8));
  const auto t = torch::ones({});
  const auto nested =
      eight.scale(std::make_tuple(t, std::vector<Tensors>{{t, t}, {t}}));
  const auto& [first, rest] = nested;
  EXPECT_EQ(first.item<float>(), 8);
  ASSERT_EQ(rest.size(), 2);
  EXPECT_EQ(rest[0][1].item<float>(), 8);
  EXPECT_EQ(rest[1][0].item<float>(), 8);
  EXPECT_EQ(eight.scale({t, t}).size(), 2);
  expect_error<c10::TypeError>(
      [&] { eight.scale(torch::Tensor()); },
      {"outputs must be a Tensor"});
}

TEST_F(GradScalerTest, ScalesHalfOutputsWithoutOverflow) {
  GradScaler fresh(cpu(65536));
  for (const auto type : {torch::kHalf, torch::kBFloat16}) {
    for (const auto& output : {torch::ones({}, type), torch::ones({2}, type)}) {
      const auto scaled = fresh.scale(output);
      EXPECT_EQ(scaled.scalar_type(), torch::kFloat);
      EXPECT_TRUE((scaled == 65536).all().item<bool>());
    }
  }
  EXPECT_EQ(
      fresh.scale(torch::ones({2}, torch::kDouble)).scalar_type(),
      torch::kDouble);
}

TEST_F(GradScalerTest, RejectsHalfGradientsAndChangesNone) {
  const auto half = torch::ones({2}, torch::kHalf).requires_grad_();
  SGD both({p, half}, torch::optim::SGDOptions(1));
  scaler.scale(torch::ones({}));
  set_grad({4, 4, 4});
  half.mutable_grad() = torch::ones({2}, torch::kHalf);
  expect_error<c10::ValueError>(
      [&] { scaler.unscale_(both); },
      {"Attempting to unscale FP16 gradients"});
  EXPECT_TRUE(bit_equal(p.grad(), vector({4, 4, 4})));
}

TEST_F(GradScalerTest, UnscalesBFloat16AndDoubleGradients) {
  for (const auto type : {torch::kBFloat16, torch::kDouble}) {
    const auto other = torch::ones({2}, type).requires_grad_();
    SGD both({p, other}, torch::optim::SGDOptions(1));
    scaler.scale(torch::ones({}));
    set_grad({4, 4, 4});
    other.mutable_grad() = torch::full({2}, 4, type);
    scaler.unscale_(both);
    EXPECT_TRUE(bit_equal(other.grad(), torch::ones({2}, type)));
    EXPECT_TRUE(bit_equal(p.grad(), vector({1, 1, 1})));
    scaler.update();
  }
}

TEST_F(GradScalerTest, ChecksEveryElementOfGradientsInAnyLayout) {
  const auto contiguous = torch::full({10, 10}, 4.f);
  const auto transposed = torch::full({10, 10}, 4.f).t();
  const auto sliced = torch::full({10, 20}, 4.f).slice(1, 0, 20, 2);
  const Tensors grads = {contiguous, transposed, sliced};
  Tensors params;
  for (const auto& grad : grads) {
    params.push_back(torch::zeros({10, 10}).requires_grad_());
    params.back().mutable_grad() = grad;
  }
  SGD three(params, torch::optim::SGDOptions(1));
  for (const float wrong : {NAN, INFINITY, -INFINITY}) {
    for (const auto& grad : grads) {
      for (torch::Tensor each : grads) each.fill_(4);
      grad[2][2].fill_(wrong);
      scaler.scale(torch::ones({}));
      EXPECT_EQ(scaler.step(three), StepResult::skipped);
      scaler.update(4.0);
    }
  }
  for (torch::Tensor each : grads) each.fill_(4);
  EXPECT_EQ(scaler.step(three), StepResult::stepped);
  for (const auto& each : grads) {
    EXPECT_TRUE((each == 1).all().item<bool>());
  }
}

TEST_F(GradScalerTest, UnscalesSparseGradientsInPlace) {
  torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 2).sparse(true));
  SGD sparse(table->parameters(), torch::optim::SGDOptions(1));
  GradScaler two(cpu(2));
  two.scale(table(torch::tensor({1, 1, 3})).sum() / 2).backward();
  two.unscale_(sparse);
  const auto& grad = table->weight.grad();
  EXPECT_FALSE(grad.is_coalesced());
  const auto dense = grad.to_dense();
  EXPECT_EQ(dense[1][0].item<float>(), 1);
  EXPECT_EQ(dense[3][1].item<float>(), .5);
  EXPECT_EQ(two.found_inf(sparse).item<float>(), 0);
  two.update();
  grad._values().index_put_({0, 0}, INFINITY);
  EXPECT_EQ(two.step(sparse), StepResult::skipped);
}

TEST_F(GradScalerTest, DoesNotCheckAgainAfterUnscaling) {
  for (const float late : {NAN, INFINITY}) {
    backward();
    scaler.unscale_(optimizer);
    set_grad({late, 1, 1});
    EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
    scaler.update();
    EXPECT_FALSE(p.isfinite().all().item<bool>());
    optimizer.zero_grad();
  }
}

TEST_F(GradScalerTest, ChecksOptimizersSeparatelyAndUpdatesOnce) {
  const auto other = vector({5}).requires_grad_();
  SGD second({other}, torch::optim::SGDOptions(1));
  backward();
  other.mutable_grad() = vector({INFINITY});
  EXPECT_EQ(scaler.step(optimizer), StepResult::stepped);
  EXPECT_EQ(scaler.step(second), StepResult::skipped);
  scaler.update();
  EXPECT_TRUE(bit_equal(p, vector({0, 1, 2})));
  EXPECT_EQ(other.item<float>(), 5);
  EXPECT_EQ(scaler.get_scale(), 2);

  set_grad({1, 1, 1});
  other.mutable_grad() = vector({1});
  scaler.step(optimizer);
  scaler.step(second);
  scaler.update();
  EXPECT_EQ(scaler.growth_tracker(), 1);
}

TEST_F(GradScalerTest, CountsTwoOverflowsOfOneUpdateOnce) {
  const auto other = vector({5}).requires_grad_();
  SGD second({other}, torch::optim::SGDOptions(1));
  scaler.scale(torch::ones({}));
  set_grad({NAN, 1, 1});
  other.mutable_grad() = vector({INFINITY});
  scaler.step(optimizer);
  scaler.step(second);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 2);
  EXPECT_EQ(scaler.consecutive_skips(), 1);
}

// ---- Host reads and skipped steps ----

TEST(HostReads, CountsEveryKindOfCopyToTheHost) {
  const torch::Tensor a = torch::ones({2}), b = torch::zeros({2});
  test::HostReads reads(/*copies=*/true);
  a[0].item<float>();
  EXPECT_EQ(reads.count(), 1);
  EXPECT_TRUE(a.cpu().defined());
  EXPECT_EQ(reads.count(), 2);
  EXPECT_TRUE(a.to(torch::kCPU).defined());
  EXPECT_EQ(reads.count(), 3);
  b.copy_(a);
  EXPECT_EQ(reads.count(), 4);
  b.copy_(a, /*non_blocking=*/true);
  EXPECT_TRUE(a.to(torch::kCPU, /*non_blocking=*/true).defined());
  EXPECT_TRUE(a.to(torch::kDouble).defined());
  EXPECT_EQ(reads.count(), 4);
}

TEST_F(GradScalerTest, ReadsTheDeviceOncePerStep) {
  const auto scaled = scaler.scale(p.sum());
  scaled.backward();
  scaler.unscale_(optimizer);
  test::HostReads reads(/*copies=*/true);
  scaler.step(optimizer);
  EXPECT_EQ(reads.count(), 1);
  scaler.update();
  EXPECT_EQ(reads.count(), 1);
  scaler.scale(p.sum());
  scaler.unscale_(optimizer);
  scaler.update(2.0);
  EXPECT_EQ(reads.count(), 1);
}

TEST_F(GradScalerTest, WarnsOnceIfEveryStepIsSkipped) {
  test::Warnings warnings;
  for (int64_t i = 1; i <= 60; ++i) {
    scaler.scale(torch::ones({}));
    set_grad({NAN, 1, 1});
    scaler.step(optimizer);
    scaler.update();
    EXPECT_EQ(scaler.consecutive_skips(), i);
    EXPECT_EQ(warnings.texts().size(), i < 50 ? 0 : 1);
  }
  EXPECT_NE(warnings.texts()[0].find("50 updates in a row"), std::string::npos);
  set_grad({1, 1, 1});
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.consecutive_skips(), 0);
}

TEST_F(GradScalerTest, DoesNotWarnOfSkipsWhileAnUpdateIsRecorded) {
  test::Warnings warnings;
  scaler.set_recording(true);
  for (int64_t i = 0; i < 60; ++i) {
    scaler.scale(torch::ones({}));
    set_grad({NAN, 1, 1});
    scaler.step(optimizer);
    scaler.update();
  }
  EXPECT_TRUE(warnings.texts().empty());
  scaler.set_recording(false);
  scaler.watch_skips();
  EXPECT_EQ(warnings.texts().size(), 1u);
}

TEST_F(GradScalerTest, CountsSkipsWithAStaticScale) {
  for (int64_t i = 1; i <= 3; ++i) {
    scaler.scale(torch::ones({}));
    set_grad({NAN, 1, 1});
    scaler.step(optimizer);
    scaler.update(512.0);
    EXPECT_EQ(scaler.consecutive_skips(), i);
  }
}

// ---- State ----

TEST_F(GradScalerTest, RestoresItsStateBeforeAndAfterTheFirstScale) {
  const GradScalerState state = {
      .scale = 32,
      .growth_factor = 3,
      .backoff_factor = .25,
      .growth_interval = 7,
      .growth_tracker = 5};
  for (const bool is_used : {false, true}) {
    GradScaler each(cpu());
    if (is_used) each.scale(torch::ones({}));
    each.load_state_dict(state);
    EXPECT_EQ(each.scale(torch::ones({})).item<float>(), 32);
    const GradScalerState back = each.state_dict();
    EXPECT_EQ(back.scale, 32);
    EXPECT_EQ(back.growth_factor, 3);
    EXPECT_EQ(back.backoff_factor, .25);
    EXPECT_EQ(back.growth_interval, 7);
    EXPECT_EQ(back.growth_tracker, 5);
    EXPECT_EQ(each.growth_tracker(), 5);
  }
}

TEST_F(GradScalerTest, RejectsAnEmptyOrWrongState) {
  expect_error<c10::ValueError>(
      [&] { scaler.load_state_dict({}); },
      {"source state dict is empty"});
  GradScalerState state = scaler.state_dict();
  state.scale = 0;
  expect_error<c10::ValueError>(
      [&] { scaler.load_state_dict(state); },
      {"scale is 0"});
}

TEST_F(GradScalerTest, StillGrowsIfTheTrackerIsBeyondTheInterval) {
  GradScalerState state = scaler.state_dict();
  state.growth_interval = 3;
  state.growth_tracker = 10;
  scaler.load_state_dict(state);
  EXPECT_EQ(scaler.growth_tracker(), 2);
  backward();
  scaler.step(optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 8);

  backward();
  scaler.step(optimizer);
  scaler.update();
  scaler.set_growth_interval(1);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST_F(GradScalerTest, IsSavedToAndLoadedFromAnArchive) {
  backward();
  scaler.step(optimizer);
  scaler.update();
  std::stringstream stream;
  torch::serialize::OutputArchive out;
  scaler.save(out);
  out.save_to(stream);
  torch::serialize::InputArchive in;
  in.load_from(stream);
  EXPECT_EQ(in.keys().size(), 5);
  GradScaler other(cpu(1024));
  other.load(in);
  EXPECT_EQ(other.get_scale(), 4);
  EXPECT_EQ(other.growth_tracker(), 1);

  backward();
  scaler.unscale_(optimizer);
  torch::serialize::OutputArchive early;
  expect_error<c10::Error>(
      [&] { scaler.save(early); },
      {"middle of an iteration"});
}

// ---- Disabled ----

TEST_F(GradScalerTest, PassesEverythingThroughIfDisabled) {
  GradScaler off({.device = torch::kCPU, .enabled = false});
  const auto loss = p.sum();
  EXPECT_TRUE(off.scale(loss).is_same(loss));
  EXPECT_TRUE(off.scale(Tensors{loss})[0].is_same(loss));
  loss.backward();
  off.update();
  for (int i = 0; i < 2; ++i) {
    off.unscale_(optimizer);
    EXPECT_EQ(off.step(optimizer), StepResult::stepped);
  }
  EXPECT_TRUE(bit_equal(p, vector({-1, 0, 1})));
  EXPECT_EQ(off.get_scale(), 1);
  EXPECT_EQ(off.growth_tracker(), 0);
  EXPECT_EQ(off.get_growth_factor(), 2);
  EXPECT_TRUE(off.state_dict().empty());
  off.load_state_dict({});
}

}  // namespace
}  // namespace tern::grad_scaler_test
