#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/checkpoint/resume.h"
#include "tern/learner/learner.h"
#include "tern/tests/support/tolerance.h"

namespace tern::testing_support {

/// Expects equal bits in everything that a checkpoint of the two Learners
/// holds.
inline void expect_same_end(Learner& actual, Learner& expected) {
  const Checkpoint a = capture_checkpoint(actual);
  const Checkpoint e = capture_checkpoint(expected);
  // Callbacks without a state, such as SaveCheckpoint, may differ.
  const auto names = [](const StateDict& state) {
    std::vector<std::string> result = state.keys();
    std::erase_if(result, [](const std::string& name) {
      return name.starts_with("empty/");
    });
    return result;
  };
  const auto same = [&](const StateDict& x, const StateDict& y) {
    ASSERT_EQ(names(x), names(y));
    for (const auto& entry : x) {
      // Wall-clock times may differ.
      if (entry.key().ends_with("/seconds")) continue;
      if (entry.key().starts_with("empty/")) continue;
      EXPECT_TRUE(test::bit_equal(entry.value(), y[entry.key()]))
          << entry.key();
    }
  };
  same(a.model, e.model);
  same(a.optimizer, e.optimizer);
  same(a.training, e.training);
}

}  // namespace tern::testing_support
