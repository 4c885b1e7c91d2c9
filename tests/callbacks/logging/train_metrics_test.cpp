#include "tern/callbacks/logging/train_metrics.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/loss.h>
#include <torch/types.h>

#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/tiny.h"

namespace tern::train_metrics_test {
namespace {

using namespace testing_support;  // NOLINT

/// Counts the correct predictions of training batches independently.
struct Counted {
  int64_t ignored = -100;
  double right = 0, all = 0;

  std::shared_ptr<Callback> callback() {
    return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
        .on_epoch_begin = [this](Learner&) { right = all = 0; },
        .on_loss_begin =
            [this](Learner& l) {
              const TrainState& s = l.state();
              if (!s.training) return;
              const torch::Tensor& target = s.batch_data.targets[0];
              const torch::Tensor known = target != ignored;
              right += (s.outputs[0].argmax(1) == target)
                           .logical_and(known)
                           .sum()
                           .item<double>();
              all += known.sum().item<double>();
            }});
  }
};

TEST(TrainMetrics, CoverTheTrainingBatchesOfEachEpoch) {
  Counted counted;
  Learner learn(
      point_data(),
      point_net(),
      quiet({.metrics = {accuracy(), f1()}}));
  learn.add(counted.callback()).add<TrainMetrics>();
  for (int epoch = 0; epoch < 2; ++epoch) {
    learn.fit(1);
    const auto& metrics = learn.recorder().epochs().back().metrics;
    ASSERT_EQ(metrics.size(), 4u);
    EXPECT_EQ(metrics[0].name, "accuracy");
    EXPECT_EQ(metrics[2].name, "train_accuracy");
    EXPECT_EQ(metrics[3].name, "train_f1");
    EXPECT_EQ(counted.all, 256);
    EXPECT_NEAR(metrics[2].value, counted.right / counted.all, 1e-12);
    EXPECT_EQ(learn.state()["train_accuracy"], metrics[2].value);
    // Training uses copies of the metrics, so validation values are unaffected.
    EXPECT_EQ(metrics[0].value, learn.validate()["accuracy"]);
  }
}

TEST(TrainMetrics, MayDifferFromTheValidationMetrics) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<TrainMetrics>({.metrics = {accuracy()}}).fit(1);
  const auto& metrics = learn.recorder().epochs().back().metrics;
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].name, "train_accuracy");
}

TEST(TrainMetrics, SkipTheClassThatTheLossIgnores) {
  const torch::nn::CrossEntropyLoss loss(
      torch::nn::CrossEntropyLossOptions().ignore_index(1));
  Learner learn(
      point_data(),
      point_net(),
      quiet({.loss = loss, .metrics = {accuracy()}}));
  Counted counted{.ignored = 1};
  learn.add(counted.callback()).add<TrainMetrics>().fit(1);
  EXPECT_LT(counted.all, 256);
  EXPECT_NEAR(
      learn.state()["train_accuracy"],
      counted.right / counted.all,
      1e-12);
}

TEST(TrainMetrics, ReportThatNoMetricsAreGiven) {
  Learner learn(point_data(), point_net(), quiet());
  learn.add<TrainMetrics>();
  expect_error<c10::ValueError>(
      [&] { learn.fit(1); },
      {"TrainMetrics", "LearnerOptions::metrics"});
}

}  // namespace
}  // namespace tern::train_metrics_test
