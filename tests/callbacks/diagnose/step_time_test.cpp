#include "tern/callbacks/diagnose/step_time.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tern/callbacks/lambda_callback.h"
#include "tern/callbacks/limit_batches.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/precision_net.h"
#include "tern/tests/support/tiny.h"

namespace tern::step_time_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

/// A network that sleeps in each forward pass.
Model slow(int64_t milliseconds) {
  return net([=](const torch::Tensor& x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return x;
  })();
}

int64_t steps_of_measuring(Learner& learn) {
  int64_t steps = 0;
  learn.add<LambdaCallback>(
      LambdaCallback::Options{.on_step_end = [&](Learner&) { ++steps; }});
  step_milliseconds(learn);
  return steps;
}

TEST(StepTime, IsTheTimeOfAStepAndChangesNothing) {
  Learner learn(some_data(), slow(20), options_with());
  learn.fit(1);
  const Tensors before = parameters_of(learn);
  const int64_t iteration = learn.state().iteration;
  EXPECT_GE(step_milliseconds(learn).value(), 20);
  EXPECT_TRUE(all_equal(parameters_of(learn), before));
  EXPECT_EQ(learn.state().iteration, iteration);
}

TEST(StepTime, IsMeasuredWithTheGivenSetUp) {
  Learner learn(some_data(), slow(0), options_with());
  const double plain = step_milliseconds(learn).value();
  const auto with_callback = step_milliseconds(learn, {}, [&] {
    learn.add<LambdaCallback>(
        LambdaCallback::Options{.on_step_end = [](Learner&) {
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
        }});
  });
  EXPECT_GE(with_callback.value(), 30);
  EXPECT_LT(plain, with_callback.value());
  EXPECT_EQ(learn.find<LambdaCallback>(), nullptr);
}

TEST(StepTime, TakesFewStepsIfTheyAreSlow) {
  Learner slow_one(some_data(), slow(300), options_with());
  EXPECT_EQ(steps_of_measuring(slow_one), 5);  // two of them to warm up
  Learner fast(some_data(), slow(0), options_with());
  const int64_t steps = steps_of_measuring(fast);
  EXPECT_GT(steps, 4);
  EXPECT_LE(steps, 52);
}

TEST(StepTime, IsUnsetIfACallbackEndsTheFit) {
  Learner learn(some_data(), slow(0), options_with());
  learn.add<StopAfterNBatches>(2);
  EXPECT_FALSE(step_milliseconds(learn));
}

// Only training steps are measured.
TEST(StepTime, IgnoresEvaluationsWithinTheFit) {
  Learner learn(some_data(), slow(0), options_with());
  learn.data().valid = learn.data().train;
  learn.add<LambdaCallback>(
      LambdaCallback::Options{.on_step_end = [](Learner& l) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        l.validate();
      }});
  EXPECT_GE(step_milliseconds(learn).value(), 20);
}

TEST(StepTime, ThrowsIfAStopWasRequested) {
  Learner learn(some_data(), slow(0), options_with());
  learn.request_stop();
  expect_error<c10::Error>(
      [&] { step_milliseconds(learn); },
      {"a stop was requested"});
}

}  // namespace
}  // namespace tern::step_time_test
