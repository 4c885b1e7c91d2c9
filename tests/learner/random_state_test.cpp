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

TEST(RandomState, RestoresTheNumbersThatComeNext) {
  torch::manual_seed(3);
  torch::randn({3});  // an odd number of normal ones leaves one in the cache
  const StateDict state = random_state();
  const torch::Tensor expected = torch::randn({5});
  torch::manual_seed(4);
  set_random_state(state);
  EXPECT_TRUE(torch::equal(torch::randn({5}), expected));
}

TEST(RandomState, IsSeededByTheSeedAndTheKeysAlone) {
  torch::manual_seed(3);
  seed_random_state(1, 2);
  const torch::Tensor expected = numbers();
  torch::manual_seed(3);
  numbers();  // how many were drawn does not matter
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

TEST(RandomState, LeavesDevicesAloneThatItDoesNotHave) {
  torch::manual_seed(3);
  const torch::Tensor expected = numbers();
  torch::manual_seed(3);
  set_random_state({});
  EXPECT_TRUE(torch::equal(numbers(), expected));
}

}  // namespace
}  // namespace tern::random_state_test
