// Ranks are killed at random moments of a training run: the others notice
// within five seconds, and none hangs. TERN_RANK_KILLS sets the number of kills
// (default 3).

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/distributed.h"
#include "tern/callbacks/precision/mixed_precision.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/tiny.h"

namespace tern::distributed_kill_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

TEST(RankKill, IsNoticedByAllRanksWithinFiveSeconds) {
  const char* const text = std::getenv("TERN_RANK_KILLS");
  const int kills = text ? std::atoi(text) : 3;
  std::mt19937 random(std::random_device{}());
  for (int kill = 0; kill < kills; ++kill) {
    const int64_t world_size = 2 + kill % 2;
    const auto victim = static_cast<int64_t>(random() % world_size);
    const std::chrono::milliseconds delay(random() % 300);
    const bool is_divided = kill % 2 == 1;
    std::vector<int> expected(world_size, 0);
    expected[victim] = -SIGKILL;
    const auto ends =
        run_ranks(world_size, [&](const LaunchEnvironment& environment) {
          Learner learn(
              point_data(256, 100, {.batch_size = 16, .workers = 0}),
              point_net(),
              quiet());
          learn.to_bf16().to_distributed(
              {.sync_batch_norm = true, .shard_optimizer = is_divided});
          if (environment.rank == victim) {
            std::thread([&] {
              std::this_thread::sleep_for(delay);
              ::raise(SIGKILL);
            }).detach();
          }
          // No rank can get more than one step ahead of the others.
          const OwnTime time;
          double last_step = 0;
          learn.add<LambdaCallback>(
              {.on_batch_end = [&](Learner&) { last_step = time.seconds(); }});
          try {
            learn.fit(100000, 1e-2);
            ADD_FAILURE() << "rank " << environment.rank << " did not notice";
          } catch (const DistributedError&) {
            EXPECT_LT(time.seconds() - last_step, 5);
          }
          EXPECT_FALSE(learn.state().is_fitting);
        });
    EXPECT_EQ(ends, expected) << "kill " << kill << " of rank " << victim
                              << " after " << delay.count() << " ms";
  }
}

}  // namespace
}  // namespace tern::distributed_kill_test
