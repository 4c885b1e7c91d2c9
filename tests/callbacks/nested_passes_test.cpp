// Evaluations that callbacks run during a fit or another evaluation leave no
// trace in it and are complete.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/callbacks/averages/ema.h"
#include "tern/callbacks/gradients.h"
#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/callbacks/precision/amp.h"
#include "tern/callbacks/schedules/lr_find.h"
#include "tern/learner/learner.h"
#include "tern/learner/metrics/metrics.h"
#include "tern/learner/recorder.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/same_end.h"
#include "tern/tests/support/tiny.h"

namespace tern::nested_passes_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

// Returns a network that draws random numbers in training and in evaluation.
torch::nn::Sequential noisy_net() {
  torch::manual_seed(7);
  return torch::nn::Sequential(
      torch::nn::Linear(2, 16),
      torch::nn::ReLU(),
      torch::nn::Dropout(0.5),
      torch::nn::Linear(16, 2),
      torch::nn::Functional([](const torch::Tensor& x) {
        return x + 0.1 * torch::randn_like(x);
      }));
}

std::unique_ptr<Learner> make_learner() {
  return std::make_unique<Learner>(
      point_data(200, 100, {.batch_size = 32, .seed = 3, .workers = 0}),
      noisy_net(),
      quiet({.metrics = {accuracy()}, .seed = 11}));
}

using Act = std::function<void(Learner&)>;

// Calls `act` in every event of training and validation, except in events of
// passes that `act` itself starts.
CallbackHandle at_every_moment(Act act) {
  auto is_inside = std::make_shared<bool>(false);
  const Act once = [act = std::move(act), is_inside](Learner& l) {
    if (*is_inside) return;
    *is_inside = true;
    act(l);
    *is_inside = false;
  };
  return std::make_shared<LambdaCallback>(LambdaCallbackOptions{
      .on_train_begin = once,
      .on_epoch_begin = once,
      .on_batch_begin = once,
      .on_loss_begin = once,
      .on_backward_begin = once,
      .on_backward_end = once,
      .on_step = once,
      .on_step_end = once,
      .on_batch_end = once,
      .on_epoch_end = once,
      .on_train_end = once,
      .on_eval_begin = once,
      .on_eval_end = once});
}

struct Pass {
  std::string name;
  Act make;
};

class NestedPass : public testing::TestWithParam<Pass> {
 protected:
  // Trains with or without the pass in each event and returns the Learner.
  static std::unique_ptr<Learner> trained(
      const Act& set_up,
      const Act& pass = {}) {
    auto learn = make_learner();
    set_up(*learn);
    if (pass) learn->add(at_every_moment(pass));
    learn->fit(2, 1e-2);
    if (pass) learn->remove(*learn->callbacks().back());
    return learn;
  }

  static void expect_no_trace(const Act& set_up) {
    const auto plain = trained(set_up);
    const auto disturbed = trained(set_up, GetParam().make);
    EXPECT_TRUE(all_equal(parameters_of(*disturbed), parameters_of(*plain)));
    EXPECT_EQ(disturbed->recorder().losses(), plain->recorder().losses());
    for (size_t i = 0; i < 2; ++i) {
      const EpochRecord& a = disturbed->recorder().epochs()[i];
      const EpochRecord& b = plain->recorder().epochs()[i];
      EXPECT_EQ(a.valid_loss, b.valid_loss);
      EXPECT_EQ(a.metrics[0].value, b.metrics[0].value);
    }
  }
};

TEST_P(NestedPass, DoesNotChangeTraining) {
  expect_no_trace([](Learner&) {});
}

TEST_P(NestedPass, DoesNotChangeAWindowOfScaledGradients) {
  expect_no_trace([](Learner& l) {
    l.to_amp({.dtype = torch::kHalf});
    l.add<GradientAccumulation>({.batches = 3});
  });
}

TEST_P(NestedPass, DoesNotChangeTrainingWithEma) {
  expect_no_trace([](Learner& l) { l.add<Ema>(0.9); });
}

INSTANTIATE_TEST_SUITE_P(
    All,
    NestedPass,
    testing::Values(
        Pass{"validate", [](Learner& l) { l.validate(); }},
        Pass{"validate_train", [](Learner& l) { l.validate(Split::train); }},
        Pass{"get_preds", [](Learner& l) { l.get_preds(); }},
        Pass{
            "predict",
            [](Learner& l) {
              l.predict({torch::tensor({1.F, 2.F})});
            }}),
    [](const auto& info) { return info.param.name; });

TEST(NestedPass, IsCompleteAfterAStopRequest) {
  const auto learn = make_learner();
  std::vector<int64_t> rows;
  std::vector<size_t> metrics;
  const Act look = [&](Learner& l) {
    rows.push_back(l.get_preds().preds.size(0));
    metrics.push_back(l.validate().metrics.size());
  };
  learn->add<LambdaCallback>(
      {.on_batch_end =
           [](Learner& l) {
             if (l.state().training && l.state().iteration == 3) {
               l.request_stop();
             }
           },
       .on_train_end = look,
       .on_interrupt = look});
  learn->fit(2, 1e-2);
  EXPECT_EQ(rows, (std::vector<int64_t>{100, 100}));
  EXPECT_EQ(metrics, (std::vector<size_t>{1, 1}));
}

TEST(NestedPass, DoesNotCutAWindowOfGradientsAfterAStopRequest) {
  const auto learn = make_learner();
  learn->add<GradientAccumulation>({.batches = 3});
  learn->add<LambdaCallback>({.on_batch_end = [](Learner& l) {
    if (!l.state().training || l.state().iteration != 2) return;
    l.request_stop();
    l.validate();
  }});
  learn->fit(2, 1e-2);
  EXPECT_EQ(learn->state().iteration, 3) << "the window has three batches";
}

TEST(NestedPass, DrawsNewRandomNumbersEachTime) {
  const auto learn = make_learner();
  const torch::Tensor first = learn->get_preds().preds;
  EXPECT_FALSE(torch::equal(learn->get_preds().preds, first));
}

TEST(NestedPass, DoesNotChangeTheRandomNumbersOfTraining) {
  const auto learn = make_learner();
  learn->fit(1, 1e-2).validate();
  learn->get_preds();
  learn->fit(1, 1e-2);
  const auto plain = make_learner();
  plain->fit(1, 1e-2).fit(1, 1e-2);
  EXPECT_TRUE(all_equal(parameters_of(*learn), parameters_of(*plain)));
}

// A metric that cannot be copied, so it has a single state.
struct Uncopied final : MetricImpl {
  Uncopied() = default;
  Uncopied(const Uncopied&) = delete;
  std::string name() const override { return "uncopied"; }
  bool higher_is_better() const override { return true; }
  void reset() override {}
  void update(const Tensors&, const Tensors&) override {}
  torch::Tensor compute() const override { return torch::zeros({}); }
};

TEST(NestedPass, RejectsMetricsOfARunningValidationThatCannotBeCopied) {
  Learner learn(
      point_data(64, 64),
      point_net(),
      quiet({.metrics = {std::make_shared<Uncopied>()}}));
  learn.add<LambdaCallback>(
      {.on_eval_begin = [](Learner& l) { l.validate(); }});
  expect_error<c10::ValueError>(
      [&] { learn.validate(); },
      {"uncopied", "copy constructor"});
}

TEST(LrFind, TriesAllLearningRatesIfCallbacksLimitTheBatches) {
  const auto losses = [](const Act& set_up) {
    Learner learn(point_data(3200, 64), point_net(), quiet());
    set_up(learn);
    return learn.lr_find({.num_it = 30, .stop_div = false}).losses.size();
  };
  EXPECT_EQ(losses([](Learner&) {}), 30U);
  EXPECT_EQ(losses([](Learner& l) { l.add<LimitBatches>({.train = 4}); }), 30U);
  EXPECT_EQ(losses([](Learner& l) { l.add<OverfitBatches>(1); }), 30U);
}

}  // namespace
}  // namespace tern::nested_passes_test
