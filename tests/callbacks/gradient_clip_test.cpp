#include <algorithm>

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/learner/amp/clip_grad.h"
#include "tern/learner/amp/master_weights.h"
#include "tern/learner/learner_parts.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tiny.h"

namespace tern::gradient_clip_test {
namespace {

using namespace testing_support;  // NOLINT

constexpr auto kAfterClip = callback_order::kGradientClip + 1;

OptimizerFactory sgd(bool fused) {
  return fused ? optimizer<optim::SGD>(torch::optim::SGDOptions(0.1))
               : optimizer<torch::optim::SGD>(torch::optim::SGDOptions(0.1));
}

std::unique_ptr<Learner>
learner(const std::string& precision, bool fused, int64_t samples = 256) {
  auto learn = std::make_unique<Learner>(
      point_data(samples),
      point_net(),
      quiet({.optimizer = sgd(fused), .weight_decay = 0}));
  if (precision == "fp16") learn->to_fp16({.force_fp16 = true});
  if (precision == "bf16") learn->to_bf16();
  if (precision == "amp") learn->to_amp({.dtype = torch::kHalf});
  return learn;
}

Tensors gradients_of(Learner& learn) {
  Tensors grads;
  for (const auto& group : learn.optimizer().param_groups()) {
    for (const auto& p : group.params()) grads.push_back(p.grad());
  }
  return grads;
}

class GradientClipTest
    : public testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(GradientClipTest, LimitsTheNormOfTheUnscaledGradients) {
  const auto& [precision, fused] = GetParam();
  const auto learn = learner(precision, fused);
  const auto clip = std::make_shared<GradientClip>(0.01);
  learn->add(clip);
  double largest = 0, unclipped = 0;
  learn->add<LambdaCallback>(
      {.on_step =
           [&](Learner& l) {
             largest =
                 std::max(largest, joint_norm(gradients_of(l)).item<double>());
             unclipped = std::max(unclipped, clip->norm().item<double>());
           },
       .order = kAfterClip});
  learn->fit(1);
  EXPECT_NEAR(largest, 0.01, 1e-4);
  EXPECT_GT(unclipped, 0.02);
  EXPECT_LT(unclipped, 10);  // the scaled norm would be 65536 times larger
}

TEST_P(GradientClipTest, LimitsEachElement) {
  const auto& [precision, fused] = GetParam();
  const auto learn = learner(precision, fused);
  learn->add<GradientClip>(GradientClip::Options{.max_value = 0.005});
  double largest = 0;
  learn->add<LambdaCallback>(
      {.on_step =
           [&](Learner& l) {
             for (const auto& grad : gradients_of(l)) {
               largest = std::max(largest, grad.abs().max().item<double>());
             }
           },
       .order = kAfterClip});
  learn->fit(1);
  EXPECT_FLOAT_EQ(static_cast<float>(largest), 0.005F);
}

INSTANTIATE_TEST_SUITE_P(
    Precisions,
    GradientClipTest,
    testing::Combine(
        testing::Values("fp32", "fp16", "bf16", "amp"),
        testing::Bool()),
    [](const auto& info) {
      return std::get<0>(info.param) +
             (std::get<1>(info.param) ? "_fused" : "_torch");
    });

TEST(GradientClip, StillSkipsAnOverflow) {
  for (const char* precision : {"fp16", "amp"}) {
    for (const bool fused : {true, false}) {
      const auto learn = learner(precision, fused, 32);
      const Tensors before = parameters_of(*learn);
      learn->add<GradientClip>(1.0).add(overflow_at({0})).fit(1);
      EXPECT_TRUE(all_equal(parameters_of(*learn), before)) << precision;
    }
  }
}

TEST(GradientClip, AcceptsTheNormAsANamedOption) {
  const auto train = [](std::shared_ptr<GradientClip> clip) {
    Learner learn(point_data(), point_net(), quiet());
    return parameters_of(learn.add(std::move(clip)).fit(1));
  };
  EXPECT_TRUE(all_equal(
      train(std::make_shared<GradientClip>(
          GradientClip::Options{.max_norm = 0.01})),
      train(std::make_shared<GradientClip>(0.01))));
}

// The option computes the norm from the scaled 16-bit gradients and applies
// scale and clipping in one division, so the last bits may differ.
TEST(GradientClip, MatchesTheClipOptionOfToFp16AndToBf16) {
  for (const bool bf16 : {false, true}) {
    for (const double norm : {0.05, 1e6}) {
      const auto train = [&](bool option) {
        Learner learn(point_data(), point_net(), quiet());
        MixedPrecisionOptions options{.force_fp16 = !bf16};
        if (option) options.clip = norm;
        learn.to_fp16(options);
        if (!option) learn.add<GradientClip>(norm);
        learn.fit(2);
        return parameters_of(learn.to_fp32());
      };
      const Tensors one = train(true), other = train(false);
      double difference = 0;
      for (size_t i = 0; i < one.size(); ++i) {
        difference = std::max(
            difference,
            (one[i] - other[i]).abs().max().item<double>());
      }
      // A norm that clips nothing must change no bit; otherwise, allow two
      // units in the last place of weights below 1.
      EXPECT_LE(difference, norm == 1e6 ? 0 : 0x1p-23) << bf16;
    }
  }
}

// The option saves a pass over the gradients: it reads but never writes them.
TEST(GradientClip, TheClipOptionOfToFp16LeavesTheGradientsScaled) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_fp16({.loss_scale = 1024, .clip = 0.01, .force_fp16 = true});
  Tensors before;
  const auto gradients = [&] {
    const Tensors& aside = parts_of(learn).step.detached_gradients;
    Tensors all;
    for (const ModelTensor& p : learn.model().parameters()) {
      const torch::Tensor gradient =
          aside.empty() ? p.tensor.grad() : aside[all.size()];
      all.push_back(gradient.clone());
    }
    return all;
  };
  int64_t steps = 0;
  learn.add<LambdaCallback>(
      {.on_backward_end = [&](Learner&) { before = gradients(); },
       .on_step_end =
           [&](Learner& l) {
             EXPECT_TRUE(all_equal(gradients(), before));
             for (const torch::Tensor& m : master_weights(l)->masters()) {
               EXPECT_FALSE(m.grad().defined());
             }
             ++steps;
           }});
  learn.fit(1);
  EXPECT_EQ(steps, 8);
}

TEST(GradientClip, IsSuggestedWhenScaledGradientsAreClippedDirectly) {
  const auto warnings_of = [](bool scaled) {
    const auto sink = std::make_shared<MemorySink>();
    Learner learn(point_data(), point_net(), {.sink = sink});
    if (scaled) learn.to_fp16({.force_fp16 = true});
    learn.add<LambdaCallback>({.on_step = [](Learner& l) {
      Tensors parameters;
      for (const ModelTensor& p : l.model().parameters()) {
        parameters.push_back(p.tensor);
      }
      clip_grad_norm_(parameters, 1);
    }});
    learn.fit(1);
    return sink->warnings;
  };
  EXPECT_TRUE(warnings_of(false).empty());
  const auto warnings = warnings_of(true);
  ASSERT_EQ(warnings.size(), 1u);  // one warning in 8 steps
  EXPECT_NE(warnings[0].find("use GradientClip"), std::string::npos);
}

TEST(GradientClip, ReadsNothingFromTheDevice) {
  Learner learn(point_data(), point_net(), quiet());
  learn.to_amp({.dtype = torch::kHalf}).add<GradientClip>(0.1);
  int reads = -1;
  std::unique_ptr<test::HostReads> counter;
  learn.add<LambdaCallback>(
      {.on_backward_begin =
           [&](Learner&) { counter = std::make_unique<test::HostReads>(); },
       .on_step_end =
           [&](Learner&) {
             reads = counter->count();
             counter.reset();
           },
       .order = callback_order::kProgress});
  learn.fit(1);
  EXPECT_EQ(reads, 0);
}

TEST(GradientClip, RejectsLimitsThatAreNotPositive) {
  expect_error<c10::ValueError>(
      [] { GradientClip clip(0); },
      {"max_norm is 0"});
  expect_error<c10::ValueError>(
      [] { GradientClip clip({.max_value = -1.}); },
      {"max_value is -1"});
}

}  // namespace
}  // namespace tern::gradient_clip_test
