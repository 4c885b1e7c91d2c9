#include "tern/learner/distributed/optimizer_shard.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/amp/grad_scaler.h"
#include "tern/learner/distributed/gradient_reducer.h"
#include "tern/learner/optim/adam.h"
#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/reduced_step.h"
#include "tern/tests/support/tolerance.h"

namespace tern::optimizer_shard_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(
      torch::nn::Linear(8, 16),
      torch::nn::Tanh(),
      torch::nn::Linear(16, 1));
}

TEST(OptimizerShard, GivesTheLargestParameterToTheLeastLoadedRank) {
  EXPECT_EQ(
      OptimizerShard::owners({5, 9, 4, 3, 2}, 2),
      (std::vector<int64_t>{1, 0, 1, 0, 1}));
  EXPECT_EQ(
      OptimizerShard::owners({7, 7, 7}, 3),
      (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(OptimizerShard::owners({1}, 4), std::vector<int64_t>{0});
}

// Four steps; the second one overflows on the last rank.
torch::nn::Sequential train(
    const std::shared_ptr<ProcessGroup>& group,
    optim::AdamW& optimizer,
    torch::nn::Sequential net) {
  GradientReducer reducer(group, net->parameters());
  GradScaler scaler({.device = torch::kCPU});
  torch::manual_seed(group->rank());
  for (int step = 0; step < 4; ++step) {
    const bool is_last = group->rank() + 1 == group->world_size();
    reduced_step(
        reducer,
        net,
        optimizer,
        scaler,
        torch::randn({4, 8}),
        /*overflows=*/step == 1 && is_last);
  }
  EXPECT_EQ(scaler.get_scale(), 32768);
  return net;
}

TEST(OptimizerShard, StepsBitIdenticalToAnUnshardedOptimizer) {
  // Five ranks are more than there are parameters.
  for (const int64_t ranks : {2, 3, 5}) {
    expect_ranks(ranks, [](const LaunchEnvironment& environment) {
      const auto group = connect(environment);
      auto whole = make_net(), divided = make_net();
      optim::AdamW with_all(whole->parameters());
      optim::AdamW with_part(divided->parameters());
      train(group, with_all, whole);
      OptimizerShard shard(group);
      shard.divide(with_part);
      train(group, with_part, divided);
      for (size_t i = 0; i < whole->parameters().size(); ++i) {
        EXPECT_TRUE(
            test::bit_equal(divided->parameters()[i], whole->parameters()[i]));
      }
      // Each rank has state for its own parameters only; together they have all
      // of it.
      const auto count =
          torch::tensor({static_cast<int64_t>(with_part.state().size())});
      EXPECT_LT(count.item<int64_t>(), 4);
      group->all_reduce(count);
      EXPECT_EQ(count.item<int64_t>(), 4);
    });
  }
}

TEST(OptimizerShard, GathersTheStateOfAllRanksOnTheFirst) {
  expect_ranks(3, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    OptimizerShard shard(group);
    StateDict mine;
    const auto rank = environment.rank;
    mine.insert("0/lr", torch::scalar_tensor(0.1, torch::kDouble));
    mine.insert(
        "layer" + std::to_string(rank) + ".weight/exp_avg",
        torch::full({rank, 2}, static_cast<double>(rank)));
    mine.insert(
        "layer" + std::to_string(rank) + ".weight/step",
        torch::scalar_tensor(rank, torch::kLong));
    const StateDict all = shard.gather_state(mine);
    if (rank != 0) {
      EXPECT_EQ(all.size(), 3);
      return;
    }
    EXPECT_EQ(all.size(), 7);
    EXPECT_TRUE(all["layer2.weight/exp_avg"].equal(torch::full({2, 2}, 2.0)));
    EXPECT_EQ(all["layer1.weight/step"].item<int64_t>(), 1);
    EXPECT_EQ(all["0/lr"].item<double>(), 0.1);
  });
}

TEST(OptimizerShard, RejectsOptimizersThatCannotBeSharded) {
  expect_ranks(1, [](const LaunchEnvironment& environment) {
    OptimizerShard shard(connect(environment));
    torch::optim::AdamW optimizer(make_net()->parameters());
    expect_error<c10::NotImplementedError>(
        [&] { shard.divide(optimizer); },
        {"expected one of tern::optim"});
    expect_error<c10::ValueError>(
        [] { OptimizerShard shard(nullptr); },
        {"process group is null"});
  });
}

}  // namespace
}  // namespace tern::optimizer_shard_test
