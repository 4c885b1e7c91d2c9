#include "tern/learner/random_state.h"

#include <utility>

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

namespace tern::random_state_test {
namespace {

torch::Tensor numbers() {
  return torch::rand({4});
}

TEST(RandomState, RestoresTheNextNumbers) {
  torch::manual_seed(3);
  torch::randn({3});  // an odd number of normal samples leaves one cached
  const StateDict state = random_state();
  const torch::Tensor expected = torch::randn({5});
  torch::manual_seed(4);
  set_random_state(state);
  EXPECT_TRUE(torch::equal(torch::randn({5}), expected));
}

TEST(RandomState, DependsOnTheSeedAndTheKeysOnly) {
  torch::manual_seed(3);
  seed_random_state(1, 2);
  const torch::Tensor expected = numbers();
  torch::manual_seed(3);
  numbers();  // the number of earlier draws does not matter
  seed_random_state(1, 2);
  EXPECT_TRUE(torch::equal(numbers(), expected));
  for (const auto& [key, second] : {std::pair{2, 1}, {1, 3}, {0, 2}}) {
    torch::manual_seed(3);
    seed_random_state(key, second);
    EXPECT_FALSE(torch::equal(numbers(), expected)) << key << ", " << second;
  }
  torch::manual_seed(4);
  seed_random_state(1, 2);
  EXPECT_FALSE(torch::equal(numbers(), expected));
}

TEST(RandomState, LeavesTheStateOfMissingDevicesUnchanged) {
  torch::manual_seed(3);
  const torch::Tensor expected = numbers();
  torch::manual_seed(3);
  set_random_state({});
  EXPECT_TRUE(torch::equal(numbers(), expected));
}

}  // namespace
}  // namespace tern::random_state_test
