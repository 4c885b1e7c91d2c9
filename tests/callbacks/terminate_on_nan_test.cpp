#include "tern/callbacks/terminate_on_nan.h"

#include <cmath>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/learner/recorder.h"
#include "tern/tests/support/op_calls.h"
#include "tern/tests/support/tiny.h"

namespace tern::terminate_on_nan_test {
namespace {

using namespace testing_support;  // NOLINT

constexpr int64_t kBatches = 4;

// Returns a loss that becomes `value` in training batch `bad`, counted over all
// fits.
Loss loss_that_is(double value, int64_t bad) {
  return Loss(
      [=, at = int64_t{0}](torch::Tensor pred, torch::Tensor target) mutable {
        torch::Tensor loss = torch::nn::CrossEntropyLoss()(pred, target);
        return at++ == bad ? loss * value : loss;
      });
}

std::unique_ptr<Learner> learner(Loss loss = {}, Sink sink = silent()) {
  return std::make_unique<Learner>(
      point_data(32 * kBatches, 0),
      point_net(),
      LearnerOptions{.loss = std::move(loss), .sink = std::move(sink)});
}

TEST(TerminateOnNaN, StopsTrainingBeforeTheBadStep) {
  for (const double value : {double(NAN), double(INFINITY)}) {
    const auto sink = std::make_shared<MemorySink>();
    const auto learn = learner(loss_that_is(value, kBatches + 2), sink);
    learn->add<TerminateOnNaN>().fit(3);
    const auto& found = learn->find<TerminateOnNaN>()->found();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->epoch, 1);
    EXPECT_EQ(found->batch, 2);
    EXPECT_EQ(learn->state().iteration, kBatches + 3);
    for (const torch::Tensor& p : parameters_of(*learn)) {
      EXPECT_TRUE(p.isfinite().all().item<bool>());
    }
    ASSERT_EQ(sink->warnings.size(), 1u);
    EXPECT_NE(
        sink->warnings[0].find("in batch 2 of epoch 1. Inputs and weights are "
                               "finite"),
        std::string::npos)
        << sink->warnings[0];
  }
}

TEST(TerminateOnNaN, ReportsThatTheInputIsNotFinite) {
  const auto learn = learner();
  learn
      ->add<LambdaCallback>(
          {.on_batch_begin =
               [](Learner& l) {
                 if (l.state().batch == 1) {
                   l.state().batch_data.inputs[0] =
                       l.state().batch_data.inputs[0] / 0;
                 }
               }})
      .add<TerminateOnNaN>()
      .fit(1);
  const auto& found = learn->find<TerminateOnNaN>()->found();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->batch, 1);
  EXPECT_NE(found->cause.find("Input 0"), std::string::npos);
}

TEST(TerminateOnNaN, ReportsThatGradientsBrokeTheWeights) {
  const auto learn = learner();
  learn
      ->add<LambdaCallback>(
          {.on_backward_end =
               [](Learner& l) {
                 if (l.state().batch != 1) return;
                 auto p = l.model().parameters()[0].tensor;
                 p.mutable_grad().fill_(NAN);
               }})
      .add<TerminateOnNaN>()
      .fit(1);
  const auto& found = learn->find<TerminateOnNaN>()->found();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->batch, 2);
  EXPECT_NE(found->cause.find("Parameter 0.weight"), std::string::npos);
}

// As on a GPU, where the loss stays on the device until it is read.
TEST(TerminateOnNaN, FindsTheBatchEvenIfLossesAreReadLate) {
  const auto learn = learner(loss_that_is(NAN, 2));
  learn
      ->add<LambdaCallback>(
          {.on_batch_end =
               [](Learner& l) {
                 l.state().loss = l.state().loss.to(torch::kDouble);
               },
           .order = callback_order::kRecorder - 1})
      .add<LambdaCallback>(
          {.on_loss_begin = [](Learner& l) { l.state().is_dry_run = true; },
           .on_backward_end = [](Learner& l) { l.state().is_dry_run = false; }})
      .add<TerminateOnNaN>()
      .fit(2);
  const auto& found = learn->find<TerminateOnNaN>()->found();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->epoch, 0);
  EXPECT_EQ(found->batch, 2);
  EXPECT_EQ(learn->state().iteration, kBatches);
}

TEST(TerminateOnNaN, LetsAGoodSecondFitRun) {
  const auto learn = learner(loss_that_is(NAN, 1));
  learn->add<TerminateOnNaN>().fit(1).fit(2);
  EXPECT_FALSE(learn->find<TerminateOnNaN>()->found());
  EXPECT_EQ(learn->state().iteration, 2 + 2 * kBatches);
}

}  // namespace
}  // namespace tern::terminate_on_nan_test
