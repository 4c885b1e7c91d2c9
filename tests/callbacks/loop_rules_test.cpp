// Rules that the loop enforces so that callbacks need not, in one process.
#include <cmath>
#include <functional>
#include <limits>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/diagnose/plan.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/saving/save_checkpoint.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/checkpoint/save.h"
#include "tern/learner/loop.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/optim/optimizer_factory.h"
#include "tern/learner/optim/sgd.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/temp_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::loop_rules_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

struct Precision {
  const char* name;
  std::function<void(Learner&)> set_up;
  double tolerance;  // of gradients, relative to the largest gradient
};

class InEveryPrecision : public testing::TestWithParam<Precision> {
 protected:
  static std::unique_ptr<Learner> learner() {
    auto learn = std::make_unique<Learner>(
        point_data(),
        point_net(),
        quiet(
            {.optimizer =
                 optimizer<optim::SGD>(torch::optim::SGDOptions(0.1))}));
    GetParam().set_up(*learn);
    return learn;
  }
};

INSTANTIATE_TEST_SUITE_P(
    LoopRules,
    InEveryPrecision,
    testing::Values(
        Precision{"fp32", [](Learner&) {}, 1e-6},
        Precision{
            "fp16",
            [](Learner& l) { l.to_fp16({.force_fp16 = true}); },
            2e-2},
        Precision{"bf16", [](Learner& l) { l.to_bf16(); }, 5e-2},
        Precision{
            "amp",
            [](Learner& l) {
              l.to_amp(
                  {.dtype = torch::kHalf,
                   .scaler = GradScalerOptions{.init_scale = 1024}});
            },
            2e-2}),
    [](const auto& info) { return info.param.name; });

std::vector<NamedGradient> copies(const std::vector<NamedGradient>& gradients) {
  std::vector<NamedGradient> result;
  for (const NamedGradient& g : gradients) {
    result.push_back({g.name, g.gradient.clone()});
  }
  return result;
}

// ---- Callbacks see unscaled gradients ----

TEST_P(InEveryPrecision, ACallbackSeesUnscaledFp32GradientsByName) {
  std::vector<NamedGradient> expected, seen, seen_later;
  const auto first_batch = [](auto act) {
    return LambdaCallbackOptions::Function([act](Learner& l) {
      if (l.state().batch == 0) act(l);
    });
  };
  Learner plain(
      point_data(),
      point_net(),
      quiet(
          {.optimizer = optimizer<optim::SGD>(torch::optim::SGDOptions(0.1))}));
  plain.add<LambdaCallback>({.on_step = first_batch([&](Learner& l) {
                               expected = copies(l.gradients());
                             })});
  plain.fit(1, 0.1);
  const auto learn = learner();
  learn->add<LambdaCallback>(
      {.on_backward_end =
           first_batch([&](Learner& l) { seen = copies(l.gradients()); }),
       .on_step = first_batch(
           [&](Learner& l) { seen_later = copies(l.gradients()); })});
  learn->fit(1, 0.1);
  ASSERT_EQ(seen.size(), expected.size());
  double largest = 0;
  for (const NamedGradient& g : expected) {
    largest = std::max(largest, g.gradient.abs().max().item<double>());
  }
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].name, expected[i].name);
    EXPECT_EQ(seen[i].gradient.scalar_type(), torch::kFloat);
    EXPECT_TRUE(torch::allclose(
        seen[i].gradient,
        expected[i].gradient,
        0,
        GetParam().tolerance * largest + 1e-7))
        << seen[i].name;
    EXPECT_TRUE(torch::equal(seen[i].gradient, seen_later[i].gradient));
  }
}

// Returns the largest value in the parameters' own `grad()`, or -1 if none is
// defined.
double largest_grad(Learner& learn) {
  double largest = -1;
  for (const ModelTensor& p : learn.model().parameters()) {
    if (!p.tensor.grad().defined()) continue;
    largest = std::max(largest, p.tensor.grad().abs().max().item<double>());
  }
  return largest;
}

// With a loss scale of 1,024 or more, a scaled gradient would be far above 10.
TEST_P(InEveryPrecision, TheGradOfAParameterIsNeverScaled) {
  const bool is_scaled = std::string(GetParam().name) != "fp32" &&
                         std::string(GetParam().name) != "bf16";
  for (const bool accumulates : {false, true}) {
    for (const bool is_fused : {true, false}) {
      Learner learn(
          point_data(),
          point_net(),
          quiet(
              {.optimizer = is_fused ? OptimizerFactory()
                                     : optimizer<torch::optim::SGD>(
                                           torch::optim::SGDOptions(0.1))}));
      GetParam().set_up(learn);
      if (accumulates) learn.add<GradientAccumulation>({.batches = 3});
      const auto look = [](Learner& l) { EXPECT_LT(largest_grad(l), 10); };
      int64_t seen = 0, steps = 0;
      learn.add<LambdaCallback>(
          {.on_batch_begin = look,
           .on_loss_begin = look,
           .on_backward_begin = look,
           .on_backward_end =
               [&](Learner& l) {
                 look(l);
                 if (largest_grad(l) >= 0) ++seen;
               },
           .on_step = look,
           .on_step_end = look,
           .on_batch_end = look});
      learn.add<LambdaCallback>(
          {.on_step =
               [&](Learner& l) {
                 for (const NamedGradient& g : l.gradients()) {
                   EXPECT_LT(g.gradient.abs().max().item<double>(), 10);
                 }
                 look(l);
                 ++steps;
               },
           .order = 1});
      const Tensors before = parameters_of(learn);
      learn.fit(1, 0.1);
      EXPECT_EQ(seen, is_scaled ? 0 : 8);
      EXPECT_EQ(steps, accumulates ? 3 : 8);
      EXPECT_FALSE(all_equal(parameters_of(learn), before));
    }
  }
}

TEST_P(InEveryPrecision, TheOptimizerStepsWithWhatACallbackWrites) {
  const auto learn = learner();
  learn->add<LambdaCallback>({.on_step = [](Learner& l) {
    for (NamedGradient& g : l.gradients()) g.gradient.zero_();
  }});
  loop::set_hyper_parameter(
      parts_of(*learn),
      HyperParameter::weight_decay,
      {0});
  const Tensors before = parameters_of(*learn);
  learn->fit(1, 0.1);
  EXPECT_TRUE(all_equal(parameters_of(*learn), before));
}

// Regression: a callback that read gradients and then skipped the step left the
// scaler unscaled, so the next step used scaled gradients or threw.
TEST_P(InEveryPrecision, AStepSkippedAfterUnscalingLeavesNoTrace) {
  const auto weights_after = [](bool reads) {
    const auto learn = learner();
    learn->add<LambdaCallback>({.on_step = [reads](Learner& l) {
      if (reads) l.gradients();
      if (l.state().batch % 2 == 0) l.state().skip_step = true;
    }});
    learn->add<GradientClip>(reads ? 1e6 : 2e6);
    learn->fit(2, 0.1);
    return parameters_of(*learn);
  };
  EXPECT_TRUE(all_equal(weights_after(true), weights_after(false)));
}

TEST_P(InEveryPrecision, GradientsKeptAfterASkipAccumulateAsIfUnread) {
  const auto weights_after = [](bool reads) {
    const auto learn = learner();
    learn->add<LambdaCallback>({.on_step = [reads](Learner& l) {
      if (reads) l.gradients();
      l.state().skip_step = l.state().skip_zero_grad = l.state().batch % 2 == 0;
    }});
    learn->fit(1, 0.1);
    return parameters_of(*learn);
  };
  const Tensors read = weights_after(true), unread = weights_after(false);
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_TRUE(torch::allclose(
        read[i].to(torch::kFloat),
        unread[i].to(torch::kFloat),
        1e-2,
        1e-3));
  }
}

TEST_P(InEveryPrecision, DuringAccumulationACallbackReadsCopiesOfTheGradients) {
  const auto weights_after = [](bool reads) {
    const auto learn = learner();
    learn->add<GradientAccumulation>({.batches = 4});
    learn->add<LambdaCallback>({.on_backward_end = [reads](Learner& l) {
      if (!reads || !l.state().accumulating) return;
      for (NamedGradient& g : l.gradients()) {
        EXPECT_LT(g.gradient.abs().max().item<double>(), 10);
        g.gradient.zero_();
      }
    }});
    learn->fit(1, 0.1);
    return parameters_of(*learn);
  };
  EXPECT_TRUE(all_equal(weights_after(true), weights_after(false)));
}

TEST(LoopRules, ReadingGradientsOutsideOfAStepFailsAndNamesTheEvents) {
  Learner learn(point_data(), point_net(), quiet());
  expect_error<c10::Error>(
      [&] { learn.gradients(); },
      {"[Learner::gradients]", "on_backward_end or on_step"});
  learn.add<LambdaCallback>(
      {.on_batch_end = [](Learner& l) { l.gradients(); }});
  expect_error<c10::Error>([&] { learn.fit(1); }, {"[Learner::gradients]"});
}

// ---- When a step is taken ----

TEST(LoopRules, OnStepIsCalledOnlyWhenWeightsMayChange) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<GradientAccumulation>({.batches = 3});
  int64_t steps = 0, ends = 0, backwards = 0;
  learn.add<LambdaCallback>(
      {.on_backward_end = [&](Learner&) { ++backwards; },
       .on_step =
           [&](Learner& l) {
             ++steps;
             EXPECT_FALSE(l.state().skip_step);
           },
       .on_step_end = [&](Learner&) { ++ends; }});
  learn.fit(1);
  EXPECT_EQ(backwards, 8);
  EXPECT_EQ(steps, 3);  // windows of 3, 3 and 2 batches
  EXPECT_EQ(ends, 3);
}

TEST(LoopRules, AnEpochEndedWithinAWindowDropsItsGradients) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<GradientAccumulation>({.batches = 3});
  std::vector<double> norms;
  int64_t steps = 0;
  learn.add<LambdaCallback>(
      {.on_backward_begin =
           [&](Learner& l) {
             if (l.state().batch != 0) return;
             double sum = 0;
             for (const ModelTensor& p : l.model().parameters()) {
               if (p.tensor.grad().defined()) {
                 sum += p.tensor.grad().abs().sum().item<double>();
               }
             }
             norms.push_back(sum);
           },
       .on_step = [&](Learner&) { ++steps; },
       .on_batch_end =
           [](Learner& l) {
             if (l.state().training && l.state().batch == 3) {
               l.state().stop_epoch = true;
             }
           }});
  learn.fit(3);
  EXPECT_EQ(norms, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(steps, 3);
}

TEST(LoopRules, AStopTakesEffectAfterTheWindowIsComplete) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<GradientAccumulation>({.batches = 3});
  learn.add<LambdaCallback>({.on_batch_end = [](Learner& l) {
    if (l.state().training && l.state().batch == 3) l.request_stop();
  }});
  learn.fit(2);
  EXPECT_EQ(learn.state().result, FitResult::interrupted);
  EXPECT_EQ(learn.state().iteration, 6);
}

TEST(LoopRules, CheckpointsAreSavedBetweenSteps) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder.path()}));
  learn.add<GradientAccumulation>({.batches = 3});
  learn.add<SaveCheckpoint>(
      {.folder = "run", .every_epochs = 0, .every_steps = 4, .keep = 0});
  learn.fit(1);
  std::vector<std::string> names;
  for (const auto& step : list_checkpoints(folder / "run")) {
    names.push_back(step.filename().string());
  }
  // Due after 4 and 8 batches; the windows end after 6 and 8.
  EXPECT_EQ(names, (std::vector<std::string>{"step_8", "step_6"}));
}

TEST(LoopRules, AStepWithoutGradientsDoesNotCountAsClean) {
  const auto weight = torch::ones({2}, torch::requires_grad());
  optim::SGD sgd({weight}, torch::optim::SGDOptions(0.1));
  GradScaler scaler({.device = torch::kCPU});
  scaler.scale(torch::ones({}));
  expect_error<c10::Error>(
      [&] { scaler.step_clipped(sgd, 1); },
      {"step_clipped", "no parameter has a gradient"});
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

// ---- Callbacks that train and callbacks that observe ----

struct Heard final : Callback {
  explicit Heard(CallbackRole role) : role_(role) {}
  void on_train_begin(Learner&) override { ++events; }
  void on_batch_end(Learner&) override { ++events; }
  void on_epoch_end(Learner&) override { ++events; }
  void on_train_end(Learner&) override { ++events; }
  CallbackRole role() const override { return role_; }

  int events = 0;

 private:
  CallbackRole role_;
};

TEST(LoopRules, ObserversGetNoEventsInDryRuns) {
  for (const CallbackRole role :
       {CallbackRole::watches, CallbackRole::writes, CallbackRole::trains}) {
    Learner learn(point_data(), point_net(), quiet());
    const auto heard = std::make_shared<Heard>(role);
    learn.add(heard);
    learn.lr_find({.num_it = 10});
    learn.plan();
    dry_run(learn);
    EXPECT_EQ(heard->events > 0, role == CallbackRole::trains);
    heard->events = 0;
    learn.fit(1);
    EXPECT_GT(heard->events, 0);
  }
}

TEST(LoopRules, ACallbackCanReadMetricsByNameInEveryEpoch) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  std::vector<double> seen;
  learn.add<LambdaCallback>({.on_epoch_end = [&](Learner& l) {
    EXPECT_EQ(l.state().last_metrics.at(0).name, "accuracy");
    seen.push_back(l.state()["accuracy"]);
  }});
  learn.lr_find({.num_it = 10});
  learn.plan();
  dry_run(learn);
  EXPECT_GE(seen.size(), 3U);
  for (const double value : seen) EXPECT_TRUE(std::isnan(value));
  seen.clear();
  learn.fit(1);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0], learn.validate()["accuracy"]);
  expect_error<c10::ValueError>(
      [&] { learn.validate()["acuracy"]; },
      {"validate()[\"acuracy\"]", "accuracy"});
  expect_error<c10::ValueError>(
      [&] { learn.state()["f1"]; },
      {"state()[\"f1\"]", "accuracy"});
}

// ---- Changes are announced once ----

TEST(LoopRules, OnLoadIsSentOnceForWeightsLoadedFromOutside) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder.path()}));
  int told = 0;
  learn.add<LambdaCallback>({.on_load = [&](Learner&) { ++told; }});
  learn.fit(1);
  EXPECT_EQ(told, 0);
  learn.save("a");
  learn.load("a");
  EXPECT_EQ(told, 1);
  learn.load_state_dict(learn.state_dict());
  EXPECT_EQ(told, 2);
  learn.lr_find({.num_it = 10});  // restores the weights at its end
  EXPECT_EQ(told, 3);
  learn.save_checkpoint("run");
  learn.resume("run");
  EXPECT_EQ(told, 4);
}

TEST(LoopRules, EmaRestartsWhenWeightsAreReplacedDuringAFit) {
  const TempFolder folder;
  Learner learn(point_data(), point_net(), quiet({.path = folder.path()}));
  learn.optimizer();
  learn.save("start");
  const Tensors start = parameters_of(learn);
  learn.add<Ema>({.decay = 0.5, .warm_up = false});
  Tensors average;
  learn.add<LambdaCallback>(
      {.on_batch_end =
           [&](Learner& l) {
             if (!l.state().training || l.state().batch + 1 < 8) return;
             l.load("start", {.with_optimizer = false});
           },
       .on_eval_end = [&](Learner& l) { average = parameters_of(l); },
       .order = callback_order::kAverages - 1});
  learn.fit(1, 0.1);
  EXPECT_TRUE(all_equal(average, start));
}

// ---- One list defines the state ----

// A dry run must restore every part that a checkpoint contains.
TEST(LoopRules, ADryRunRestoresEveryPartOfACheckpoint) {
  Learner learn(point_data(), point_net(), quiet({.metrics = {accuracy()}}));
  learn.to_fp16({.init_scale = 64, .growth_interval = 3, .force_fp16 = true});
  learn.add<Ema>({.decay = 0.9}).add<GradientAccumulation>({.batches = 3});
  learn.fit(1, 1e-2);
  const Checkpoint before = capture_checkpoint(learn);
  learn.lr_find({.num_it = 10});
  learn.plan();
  dry_run(learn);
  const Checkpoint after = capture_checkpoint(learn);
  EXPECT_EQ(after.settings, before.settings);
  const auto expect_same = [](const StateDict& a, const StateDict& b) {
    ASSERT_EQ(a.keys(), b.keys());
    for (const auto& entry : a) {
      // The call of lr_find is recorded, as checked below.
      if (entry.key().find("fit_calls") != std::string::npos ||
          entry.key().find("fit_batches") != std::string::npos ||
          entry.key().find("fit_epochs") != std::string::npos) {
        continue;
      }
      // NaN equals NaN, for epochs without validation.
      EXPECT_TRUE(torch::allclose(
          entry.value().to(torch::kDouble),
          b[entry.key()].to(torch::kDouble),
          0,
          0,
          /*equal_nan=*/true))
          << entry.key();
    }
  };
  expect_same(after.model, before.model);
  expect_same(after.optimizer, before.optimizer);
  expect_same(after.training, before.training);
  const auto& calls = learn.recorder().calls();
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[1].call, "lr_find(1e-07, 10, num_it = 10)");
}

TEST(LoopRules, TheLearnersLearningRateAppliesToEveryLayerGroup) {
  Learner learn(point_data(), point_net(), quiet({.lr = 0.02}));
  learn.split({"3"});
  learn.fit(1);
  EXPECT_EQ(learn.learning_rates(), (std::vector<double>{0.02, 0.02}));
  learn.fit(1, LearningRates::up_to(0.02));
  EXPECT_DOUBLE_EQ(learn.learning_rates()[0], 0.002);
}

}  // namespace
}  // namespace tern::loop_rules_test
