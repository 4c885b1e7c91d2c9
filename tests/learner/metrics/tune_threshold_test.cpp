#include "tern/learner/metrics/tune_threshold.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/learner/metrics/multi_label.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::tune_threshold_test {
namespace {

using namespace testing_support;  // NOLINT

/// Its model returns its inputs; the activation is a sigmoid.
Learner learner_with(
    const torch::Tensor& logits,
    const torch::Tensor& targets) {
  const auto dataset =
      std::make_shared<TensorDataset>(Tensors{logits}, Tensors{targets});
  DataBunch data =
      DataBunch::create(dataset, dataset, {.batch_size = 3, .workers = 0});
  data.device = torch::kCPU;
  torch::nn::Sequential net(torch::nn::Linear(logits.size(1), logits.size(1)));
  const torch::NoGradGuard no_grad;
  net->parameters()[0].copy_(torch::eye(logits.size(1)));
  net->parameters()[1].zero_();
  return Learner(data, net, quiet({.loss = torch::nn::BCEWithLogitsLoss()}));
}

double f_beta_at(Learner& learn, double threshold, double beta) {
  const Predictions predictions = learn.get_preds();
  Metric metric = f_beta_multi(
      beta,
      {.threshold = threshold, .sigmoid = false, .average = Average::micro});
  metric.update({predictions.preds}, {predictions.targets});
  return metric.compute().item<double>();
}

TEST(TuneThreshold, FindsTheBestFBeta) {
  torch::manual_seed(5);
  for (const double beta : {0.5, 1.0, 3.0}) {
    SCOPED_TRACE(beta);
    const torch::Tensor logits = torch::randn({60, 4});
    const torch::Tensor targets =
        (logits + 1.5 * torch::randn({60, 4}) > 1).to(torch::kFloat);
    Learner learn = learner_with(logits, targets);
    const double threshold = tune_threshold(learn, {.beta = beta});
    EXPECT_EQ(learn.data().outputs.at(0).threshold, threshold);
    const double best = f_beta_at(learn, threshold, beta);
    for (double other = 0; other < 1; other += 1. / 256) {
      EXPECT_LE(f_beta_at(learn, other, beta), best) << other;
    }
  }
}

TEST(TuneThreshold, IsHalfwayBetweenTwoProbabilities) {
  const torch::Tensor p = torch::tensor({{.9f, .6f, .2f}, {.7f, .3f, .2f}});
  const torch::Tensor targets =
      torch::tensor({{1.f, 1.f, 0.f}, {1.f, 0.f, 0.f}});
  Learner learn = learner_with(p.logit(), targets);
  EXPECT_NEAR(tune_threshold(learn), 0.45, 1e-6);
  // predict uses it from now on.
  learn.data().classes = {"a", "b", "c"};
  learn.data().outputs[0].names = {"a", "b", "c"};
  const torch::Tensor sample = torch::tensor({.46f, .44f, .9f}).logit();
  EXPECT_EQ(learn.predict(sample).label, "a, c");
}

TEST(TuneThreshold, IsNeverBetweenEqualProbabilities) {
  const torch::Tensor p = torch::tensor({{.8f}, {.5f}, {.5f}, {.5f}, {.1f}});
  const torch::Tensor targets =
      torch::tensor({{1.f}, {1.f}, {0.f}, {0.f}, {0.f}});
  Learner learn = learner_with(p.logit(), targets);
  // F1 is 2/3 above .5 and also above .1 (4/6): the higher threshold is chosen.
  EXPECT_NEAR(tune_threshold(learn), 0.65, 1e-6);
}

TEST(TuneThreshold, RejectsOutputsWithoutOneProbabilityPerTarget) {
  Learner classes(point_data(), point_net(), quiet());
  expect_error<c10::ValueError>(
      [&] { tune_threshold(classes); },
      {"[100, 2] Float", "[100] Long"});
  Learner none = learner_with(torch::randn({4, 2}), torch::zeros({4, 2}));
  expect_error<c10::ValueError>(
      [&] { tune_threshold(none); },
      {"no target", "valid"});
  expect_error<c10::ValueError>(
      [&] { tune_threshold(none, {.beta = 0}); },
      {"beta is 0"});
}

}  // namespace
}  // namespace tern::tune_threshold_test
