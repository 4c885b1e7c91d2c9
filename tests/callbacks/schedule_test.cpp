#include "tern/callbacks/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tern/tests/support/expect_error.h"

namespace tern::schedule_test {
namespace {

TEST(Schedule, GoesFromStartToEnd) {
  for (const Schedule& s :
       {schedule::linear(2, 8),
        schedule::cosine(2, 8),
        schedule::exponential(2, 8),
        schedule::polynomial(2, 8, 3)}) {
    EXPECT_DOUBLE_EQ(s(0), 2);
    EXPECT_DOUBLE_EQ(s(1), 8);
  }
  EXPECT_EQ(schedule::constant(3)(0.7), 3);
}

TEST(Schedule, HasItsFormInBetween) {
  EXPECT_DOUBLE_EQ(schedule::linear(2, 8)(0.25), 3.5);
  EXPECT_DOUBLE_EQ(schedule::cosine(2, 8)(0.5), 5);
  EXPECT_LT(schedule::cosine(2, 8)(0.1), schedule::linear(2, 8)(0.1));
  EXPECT_DOUBLE_EQ(schedule::exponential(2, 8)(0.5), 4);
  EXPECT_DOUBLE_EQ(schedule::polynomial(2, 8, 2)(0.5), 3.5);
}

TEST(Schedule, PutsPhasesOneAfterTheOther) {
  const Schedule s = schedule::phases(
      {{0.25, schedule::linear(0, 1)},
       {0.25, schedule::constant(5)},
       {0.5, schedule::linear(1, 0)}});
  EXPECT_DOUBLE_EQ(s(0.125), 0.5);
  EXPECT_DOUBLE_EQ(s(0.25), 5);
  EXPECT_DOUBLE_EQ(s(0.75), 0.5);
  EXPECT_DOUBLE_EQ(s(1), 0);
}

TEST(Schedule, NeverGoesBeyondTheEndOfAPhase) {
  // (1 - 0.7) / 0.3 is a little above 1 as the processor computes it.
  const Schedule s = schedule::phases(
      {{0.1, schedule::constant(1)},
       {0.6, schedule::constant(1)},
       {0.3, schedule::linear(1, 0)}});
  EXPECT_EQ(s(1), 0);
}

TEST(Schedule, RefusesPhasesThatDoNotSumToOne) {
  expect_error<c10::ValueError>(
      [] {
        schedule::phases(
            {{0.5, schedule::constant(1)}, {0.4, schedule::constant(1)}});
      },
      {"2 phases add up to 0.9", "expected 1"});
  expect_error<c10::ValueError>(
      [] { schedule::phases({}); },
      {"0 phases add up to 0"});
  expect_error<c10::ValueError>(
      [] {
        schedule::phases({{1.5, schedule::constant(1)}, {-0.5, {}}});
      },
      {"part -0.5 and no schedule"});
}

TEST(Schedule, RefusesWhatHasNoForm) {
  expect_error<c10::ValueError>(
      [] { schedule::exponential(0, 1); },
      {"start is 0", "both > 0"});
  expect_error<c10::ValueError>(
      [] { schedule::polynomial(0, 1, 0); },
      {"power is 0"});
}

}  // namespace
}  // namespace tern::schedule_test
