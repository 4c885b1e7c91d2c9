#include "tern/learner/broadcast.h"

#include <string>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/tests/support/ranks.h"

namespace tern::broadcast_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

TEST(Broadcast, SendsTheTextOfOneRankToAll) {
  for (const int64_t root : {0, 2}) {
    expect_ranks(3, [&](const LaunchEnvironment& environment) {
      const auto group = connect(environment);
      const bool is_root = environment.rank == root;
      for (const std::string text : {"", "one", "line\nbreak"}) {
        EXPECT_EQ(broadcast_text(*group, is_root ? text : "own", root), text);
      }
    });
  }
}

// Gloo does not support all of these dtypes.
TEST(Broadcast, SendsNamesDtypesAndValuesToRanksWithoutThem) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const StateDict state = {
        {"with a space", torch::full({2, 3}, 1.5)},
        {"short", torch::full({2}, 7, torch::kShort)},
        {"complex", torch::full({2}, 3, torch::kComplexDouble)},
        {"flag", torch::ones({}, torch::kBool)},
        {"strided", torch::arange(6).view({2, 3}).t()},
        {"none", torch::zeros({0, 2})}};
    const bool is_root = environment.rank == 1;
    const StateDict got =
        broadcast_state(*group, is_root ? state : StateDict(), 1);
    ASSERT_EQ(got.keys(), state.keys());
    for (const auto& entry : state) {
      const torch::Tensor& tensor = got[entry.key()];
      EXPECT_EQ(tensor.scalar_type(), entry.value().scalar_type());
      EXPECT_TRUE(tensor.equal(entry.value())) << entry.key();
    }
  });
}

}  // namespace
}  // namespace tern::broadcast_test
