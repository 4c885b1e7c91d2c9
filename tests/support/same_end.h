#pragma once

#include <gtest/gtest.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/tolerance.h"

namespace tern::testing_support {

/// Two Learners have the same bits in everything that a checkpoint holds.
inline void expect_same_end(Learner& actual, Learner& expected) {
  const Checkpoint a = capture_checkpoint(actual);
  const Checkpoint e = capture_checkpoint(expected);
  const auto same = [](const StateDict& x, const StateDict& y) {
    ASSERT_EQ(x.keys(), y.keys());
    for (const auto& entry : x) {
      // Wall-clock times are not a part of the result.
      if (entry.key().ends_with("/seconds")) continue;
      EXPECT_TRUE(test::bit_equal(entry.value(), y[entry.key()]))
          << entry.key();
    }
  };
  same(a.model, e.model);
  same(a.optimizer, e.optimizer);
  same(a.training, e.training);
}

}  // namespace tern::testing_support
