#include "tern/callbacks/logging/activation_stats.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/gradients.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tiny.h"

namespace tern::activation_stats_test {
namespace {

using namespace testing_support;  // NOLINT

std::unique_ptr<Learner> learner() {
  return std::make_unique<Learner>(point_data(), point_net(), quiet());
}

std::vector<std::string> names(const std::vector<LayerStats>& layers) {
  std::vector<std::string> names;
  for (const LayerStats& layer : layers) names.push_back(layer.name);
  return names;
}

TEST(ActivationStats, MeasuresTheLayersOfASequential) {
  const auto learn = learner();
  std::vector<torch::Tensor> outputs;
  learn->add<ActivationStats>({.every = 4})
      .add<LambdaCallback>(
          {.on_loss_begin =
               [&](Learner& l) {
                 if (!l.state().training) return;
                 outputs.push_back(l.state().outputs[0].detach().clone());
               }})
      .fit(1)
      .fit(1);
  const auto& layers = learn->find<ActivationStats>()->activations();
  EXPECT_EQ(names(layers), (std::vector<std::string>{"0", "1", "2", "3"}));
  const LayerStats& last = layers[3];
  EXPECT_EQ(last.iterations, (std::vector<int64_t>{0, 4, 8, 12}));
  for (size_t i = 0; i < 4; ++i) {
    const torch::Tensor& x = outputs[4 * i];
    EXPECT_NEAR(last.mean[i], x.mean().item<double>(), 1e-6);
    EXPECT_NEAR(last.std[i], x.std(false).item<double>(), 1e-6);
    EXPECT_NEAR(
        last.near_zero[i],
        (x.abs() <= 0.05).to(torch::kDouble).mean().item<double>(),
        1e-6);
  }
  EXPECT_GT(layers[2].near_zero[0], 0.3);  // ReLU
}

TEST(ActivationStats, MeasuresTheStepInWhichAnotherCallbackEvaluates) {
  for (const bool evaluates : {false, true}) {
    const auto learn = learner();
    learn->add<LambdaCallback>(
        {.on_step =
             [&](Learner& l) {
               if (evaluates && l.state().iteration == 1) l.validate();
             },
         .order = callback_order::kFirst});
    learn->add<ActivationStats>({.every = 1}).fit(1);
    const auto stats = learn->find<ActivationStats>();
    const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
    EXPECT_EQ(stats->activations()[0].iterations, all);
    EXPECT_EQ(stats->gradients()[0].iterations, all);
  }
}

TEST(ActivationStats, MeasuresUnscaledGradientsBeforeClipping) {
  for (const bool half : {false, true}) {
    const auto learn = learner();
    std::vector<double> means;
    if (half) learn->to_fp16({.force_fp16 = true});
    learn->add<ActivationStats>({.every = 1}).add<GradientClip>(1e-3);
    const auto plain = learner();
    plain->add<LambdaCallback>({.on_step = [&](Learner& l) {
      means.push_back(
          l.model().parameters()[4].tensor.grad().std(false).item<double>());
    }});
    learn->fit(1);
    plain->fit(1);
    const LayerStats& weight =
        learn->find<ActivationStats>()->gradients().at(4);
    EXPECT_EQ(weight.name, "3.weight");
    ASSERT_EQ(weight.std.size(), 8u);
    EXPECT_NEAR(weight.std[0] / means[0], 1, half ? 0.01 : 1e-5);
  }
}

TEST(ActivationStats, DoesNotChangeTraining) {
  const auto train = [](bool with) {
    const auto learn = learner();
    if (with) learn->add<ActivationStats>({.every = 1});
    learn->fit(1).fit(1);
    EXPECT_EQ(learn->model().parameters()[0].name, "0.weight");
    return parameters_of(*learn);
  };
  EXPECT_TRUE(all_equal(train(true), train(false)));
}

TEST(ActivationStats, ReadsItsValuesTogetherWithTheLosses) {
  const auto learn = learner();
  // A kDouble loss stays on its device until the recorder is flushed.
  learn->add<LambdaCallback>(
      {.on_batch_end =
           [](Learner& l) {
             l.state().loss = l.state().loss.to(torch::kDouble);
           },
       .order = callback_order::kRecorder - 1});
  learn->add<ActivationStats>({.every = 1});
  const auto stats = learn->find<ActivationStats>();
  std::vector<size_t> seen;
  learn->add<LambdaCallback>(
      {.on_batch_end =
           [&](Learner& l) {
             if (l.state().batch == 5) l.recorder().flush();
             if (l.state().training) {
               seen.push_back(stats->activations()[0].mean.size());
             }
           },
       .order = callback_order::kRecorder + 1});
  learn->fit(1);
  EXPECT_EQ(seen[5], 0u);
  EXPECT_EQ(seen[6], 6u);
  EXPECT_EQ(stats->activations()[0].mean.size(), 8u);
}

TEST(ActivationStats, RecordsNothingOfDryRunsAndFailedFits) {
  const auto learn = learner();
  learn->add<ActivationStats>({.every = 1});
  learn->lr_find({.num_it = 6});
  const auto stats = learn->find<ActivationStats>();
  EXPECT_TRUE(stats->activations().empty());
  bool fails = true;
  learn->add<LambdaCallback>({.on_step = [&](Learner&) {
    if (fails) throw std::runtime_error("stop");
  }});
  EXPECT_THROW(learn->fit(1), std::runtime_error);
  fails = false;
  learn->fit(1);
  EXPECT_EQ(stats->activations()[0].mean.size(), 8u);
}

TEST(ActivationStats, RejectsOptionsOutOfRange) {
  expect_error<c10::ValueError>(
      [] { ActivationStats stats({.every = 0}); },
      {"every is 0"});
  expect_error<c10::ValueError>(
      [] { ActivationStats stats({.near_zero = -1}); },
      {"near_zero is -1"});
}

struct Block : torch::nn::Module {
  Block() {
    inner = register_module(
        "inner",
        torch::nn::Sequential(torch::nn::Linear(3, 3), torch::nn::Tanh()));
  }
  torch::Tensor forward(const torch::Tensor& x) { return inner->forward(x); }
  torch::nn::Sequential inner{nullptr};
};

TEST(ForwardHooks, ReachSequentialsInsideModules) {
  torch::nn::Sequential net(std::make_shared<Block>(), torch::nn::Linear(3, 1));
  const auto x = torch::randn({2, 3});
  const auto expected = net->forward(x);
  std::vector<size_t> order;
  {
    ForwardHooks taps(net, [&](size_t layer, const torch::Tensor&) {
      order.push_back(layer);
    });
    EXPECT_EQ(
        taps.names(),
        (std::vector<std::string>{"0", "1", "0.inner.0", "0.inner.1"}));
    EXPECT_TRUE(torch::equal(net->forward(x), expected));
    EXPECT_EQ(net->named_parameters().size(), 4u);
  }
  EXPECT_EQ(order, (std::vector<size_t>{2, 3, 0, 1}));
  EXPECT_TRUE(torch::equal(net->forward(x), expected));
  EXPECT_EQ(order.size(), 4u);
}

}  // namespace
}  // namespace tern::activation_stats_test
