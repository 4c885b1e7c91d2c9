#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/tests/support/tolerance.h"

namespace tern::testing_support {

/// A checkpoint of a few hundred bytes; its tensors identify its step.
inline Checkpoint tiny_checkpoint(int64_t step, std::string run = "ab12") {
  Checkpoint checkpoint;
  checkpoint.run = std::move(run);
  checkpoint.step = step;
  const auto filled = [step](at::IntArrayRef sizes) {
    return torch::full(sizes, static_cast<double>(step), torch::kFloat);
  };
  checkpoint.model.insert("weight", filled({3, 2}));
  checkpoint.model.insert("bias", filled({3}));
  checkpoint.optimizer.insert("weight/exp_avg", filled({3, 2}));
  checkpoint.training.insert("epoch", torch::scalar_tensor(step, torch::kLong));
  checkpoint.settings = {{"batch size", "32"}};
  return checkpoint;
}

inline void expect_equal(const StateDict& actual, const StateDict& expected) {
  ASSERT_EQ(actual.keys(), expected.keys());
  for (const auto& entry : actual) {
    EXPECT_TRUE(test::bit_equal(entry.value(), expected[entry.key()]))
        << entry.key();
  }
}

inline void expect_equal(const Checkpoint& actual, const Checkpoint& expected) {
  EXPECT_EQ(actual.run, expected.run);
  EXPECT_EQ(actual.step, expected.step);
  EXPECT_EQ(actual.settings, expected.settings);
  expect_equal(actual.model, expected.model);
  expect_equal(actual.optimizer, expected.optimizer);
  expect_equal(actual.training, expected.training);
}

}  // namespace tern::testing_support
