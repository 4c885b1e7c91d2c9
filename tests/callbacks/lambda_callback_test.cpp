#include "tern/callbacks/lambda_callback.h"

#include <gtest/gtest.h>

#include "tern/learner/learner.h"
#include "tern/tests/support/tiny.h"

namespace tern::lambda_callback_test {
namespace {

using namespace testing_support;  // NOLINT

TEST(LambdaCallback, CallsItsFunctionsInEveryFit) {
  Learner learn(point_data(64, 0), point_net(), quiet());
  int batches = 0, ends = 0;
  learn.add<LambdaCallback>(
      {.on_batch_end = [&](Learner&) { ++batches; },
       .on_train_end = [&](Learner&) { ++ends; }});
  learn.fit(2).fit(1);
  EXPECT_EQ(batches, 6);
  EXPECT_EQ(ends, 2);
}

TEST(LambdaCallback, HasTheGivenOrder) {
  EXPECT_EQ(LambdaCallback({.order = 7}).order(), 7);
  EXPECT_EQ(LambdaCallback({}).order(), 0);
}

}  // namespace
}  // namespace tern::lambda_callback_test
