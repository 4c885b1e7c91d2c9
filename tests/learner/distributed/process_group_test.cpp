#include "tern/learner/distributed/process_group.h"

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/tests/support/expect_error.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/ranks.h"

namespace tern::process_group_test {
namespace {

using namespace testing_support;  // NOLINT: in a test

TEST(ProcessGroup, BroadcastsTensorsOfAllDtypesFromOneRank) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const bool is_root = group->rank() == 1;
    const double fill = is_root ? 3 : 0;
    const Tensors tensors = {
        torch::full({2, 3}, fill),
        torch::full({4}, fill, torch::kHalf),
        torch::full({}, fill),
        torch::full({5}, static_cast<int64_t>(fill), torch::kLong),
        torch::full({2, 2}, fill).t(),
        torch::empty({0})};
    group->broadcast(tensors, 1);
    for (const torch::Tensor& tensor : tensors) {
      EXPECT_TRUE(tensor.eq(3).all().item<bool>()) << tensor;
    }
  });
}

TEST(ProcessGroup, AllReduceSums) {
  expect_ranks(3, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const auto mine = torch::tensor({static_cast<double>(group->rank()), 1.0});
    const auto sum = mine.clone();
    group->all_reduce(sum);
    EXPECT_TRUE(sum.equal(torch::tensor({3.0, 3.0})));
  });
}

TEST(ProcessGroup, GathersStringsOfAnyLengthInRankOrder) {
  expect_ranks(3, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    const std::string texts[] = {"", std::string(1000, 'x'), {"a\0b", 3}};
    const auto all = group->all_gather(texts[group->rank()]);
    EXPECT_EQ(all, std::vector<std::string>(texts, texts + 3));
  });
}

TEST(ProcessGroup, ReportsWhichRankDiffers) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment);
    group->check_equal("seed", "7");
    expect_error<DistributedError>(
        [&] { group->check_equal("seed", group->rank() ? "8" : "7"); },
        {"the seed of rank 1 is 8, but rank 0 has 7"});
  });
}

TEST(ProcessGroup, RejectsAGpuThatDoesNotExist) {
  const LaunchEnvironment environment;
  expect_error<c10::ValueError>(
      [&] {
        ProcessGroup::connect(
            environment,
            {.device = torch::Device(torch::kCUDA, 99)});
      },
      {"cuda:99", "CUDA devices", "DataBunch::device"});
  expect_error<c10::ValueError>(
      [&] { ProcessGroup::connect(environment, {.device = torch::kMeta}); },
      {"meta"});
}

TEST(ProcessGroup, ReportsTheErrorThatEndedAnotherRank) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    auto group = connect(environment);
    if (group->rank() == 1) {
      group->tell_error("no such image: cat.jpg");
      group.reset();
      return;
    }
    const OwnTime waited;
    expect_error<DistributedError>(
        [&] { group->barrier(); },
        {"rank 1 ended with: no such image: cat.jpg"});
    EXPECT_LT(waited.seconds(), 5);
  });
}

TEST(ProcessGroup, DoesNotRepeatTheRankThatAnErrorNames) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    auto group = connect(environment);
    if (group->rank() == 1) {
      group->tell_error("no gradient came for fc.weight on rank 1");
      group.reset();
      return;
    }
    expect_error<DistributedError>(
        [&] { group->barrier(); },
        {"another rank ended with: no gradient came for fc.weight on rank 1"});
  });
}

TEST(ProcessGroup, DetectsAKilledRankWithinSeconds) {
  const std::vector<int> results =
      run_ranks(2, [](const LaunchEnvironment& environment) {
        const auto group = connect(environment);
        group->barrier();
        if (group->rank() == 1) ::raise(SIGKILL);
        const OwnTime waited;
        const auto tensor = torch::ones({1000});
        expect_error<DistributedError>(
            [&] { group->all_reduce(tensor); },
            {"rank 0 of 2 lost its connection"});
        EXPECT_LT(waited.seconds(), 5);
      });
  EXPECT_EQ(results, (std::vector<int>{0, -SIGKILL}));
}

// Rank 0 waits for rank 1. Meanwhile rank 2 leaves as `go` does; rank 1 only
// continues after rank 0 has received the error.
std::vector<int> wait_while_one_goes(
    const std::function<void(ProcessGroup&)>& go,
    const std::string& reason) {
  SharedCount begun, heard;
  return run_ranks(3, [&](const LaunchEnvironment& environment) {
    auto group = connect(environment);
    group->barrier();
    if (group->rank() == 2) {
      begun.wait_for(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return go(*group);
    }
    if (group->rank() == 1) return heard.wait_for(1);
    const OwnTime waited;
    const auto tensor = torch::zeros({3});
    begun.add_one();
    expect_error<DistributedError>(
        [&] { group->broadcast({tensor}, 1); },
        {reason});
    group.reset();  // Gloo would wait for rank 1 here too
    EXPECT_LT(waited.seconds(), 5);
    heard.add_one();
  });
}

TEST(ProcessGroup, ARankThatWaitsForASlowRankLearnsThatAThirdWasKilled) {
  const auto ends = wait_while_one_goes(
      [](ProcessGroup&) { ::raise(SIGKILL); },
      "the connection to rank 2 is lost");
  EXPECT_EQ(ends, (std::vector<int>{0, 0, -SIGKILL}));
}

TEST(ProcessGroup, ARankThatWaitsForASlowRankLearnsWhyAThirdLeft) {
  const auto ends = wait_while_one_goes(
      [](ProcessGroup& group) {
        group.tell_error("no such image: cat.jpg");
        group.leave();
      },
      "rank 2 ended with: no such image: cat.jpg");
  EXPECT_EQ(ends, std::vector<int>(3, 0));
}

TEST(ProcessGroup, CanBeLeftAtAnyMomentAndTwice) {
  for (const int64_t world_size : {1, 2, 3}) {
    // Leave only when all are connected: leaving earlier is an error for ranks
    // that are still connecting.
    SharedCount to_reset, to_leave;
    expect_ranks(world_size, [&](const LaunchEnvironment& environment) {
      auto group = connect(environment);
      to_reset.add_one();
      to_reset.wait_for(world_size);
      group.reset();
    });
    expect_ranks(world_size, [&](const LaunchEnvironment& environment) {
      const auto group = connect(environment);
      to_leave.add_one();
      to_leave.wait_for(world_size);
      group->leave();
      group->leave();
      EXPECT_THROW(group->barrier(), DistributedError);
    });
  }
}

TEST(ProcessGroup, AFinishedRankMayLeaveBeforeALateOneFinishes) {
  SharedCount gone;
  expect_ranks(4, [&](const LaunchEnvironment& environment) {
    auto group = connect(environment);
    group->barrier();
    // Rank 1 forwards the tensors to rank 3, so it waits too.
    if (group->rank() == 3) gone.wait_for(2);
    Tensors tensors = {torch::full({3}, static_cast<double>(group->rank()))};
    group->gradients().broadcast(tensors)->wait();
    EXPECT_TRUE(tensors[0].eq(0).all().item<bool>());
    group.reset();
    gone.add_one();
  });
}

TEST(ProcessGroup, TimesOutIfARankDoesNotRespond) {
  SharedCount given_up;
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    const auto group = connect(environment, std::chrono::seconds(2));
    group->barrier();
    if (group->rank() == 1) return given_up.wait_for(1);
    const OwnTime waited;
    expect_error<DistributedError>(
        [&] { group->barrier(); },
        {"did not respond within 2000 ms"});
    EXPECT_LT(waited.seconds(), 4);
    given_up.add_one();
  });
}

// Gloo ends the program if messages have different sizes.
TEST(ProcessGroup, NamesTheCallsThatDiffer) {
  using Call = std::function<void(ProcessGroup&)>;
  const auto all_reduce = [](std::vector<int64_t> shape,
                             torch::ScalarType type) {
    return [=](ProcessGroup& group) {
      group.all_reduce(torch::zeros(shape, type));
    };
  };
  const std::vector<std::tuple<Call, Call, std::string, std::string>> pairs = {
      {all_reduce({3}, torch::kDouble),
       all_reduce({5}, torch::kDouble),
       "all_reduce of Double [3]",
       "all_reduce of Double [5]"},
      {all_reduce({100, 100}, torch::kFloat),
       all_reduce({1}, torch::kDouble),
       "all_reduce of Float [100,100]",
       "all_reduce of Double [1]"},
      {[](ProcessGroup& group) { group.barrier(); },
       all_reduce({7}, torch::kFloat),
       "barrier",
       "all_reduce of Float [7]"},
      {[](ProcessGroup& group) { group.broadcast({torch::zeros({9})}); },
       [](ProcessGroup& group) { group.check_equal("batch size", "16"); },
       "broadcast of Float [9]",
       "all_gather of the batch size"}};
  for (const auto& [first, second, of_first, of_second] : pairs) {
    expect_ranks(3, [&](const LaunchEnvironment& environment) {
      const auto group = connect(environment);
      group->barrier();
      const OwnTime waited;
      expect_error<DistributedError>(
          [&] { group->rank() == 2 ? second(*group) : first(*group); },
          {"rank 0 calls " + of_first, "rank 2 calls " + of_second});
      EXPECT_LT(waited.seconds(), 5);
    });
  }
}

// The two calls wait for each other until the timeout, but Gloo ends no
// process.
TEST(ProcessGroup, ACallDuringAnotherRanksGradientsEndsWithTheTimeout) {
  expect_ranks(2, [](const LaunchEnvironment& environment) {
    const auto group = connect(environment, std::chrono::seconds(2));
    group->barrier();
    if (group->rank() == 0) {
      expect_error<DistributedError>(
          [&] { group->barrier(); },
          {"rank 0 of 2 lost its connection"});
      return;
    }
    Tensors gradients = {torch::zeros({1000})};
    EXPECT_THROW(
        group->gradients().allreduce(gradients)->wait(),
        std::exception);
  });
}

TEST(ProcessGroup, ReportsThatNotAllRanksConnected) {
  expect_ranks(1, [](LaunchEnvironment environment) {
    environment.world_size = 2;
    expect_error<DistributedError>(
        [&] { connect(environment, std::chrono::seconds(1)); },
        {"rank 0 of 2 could not connect",
         "127.0.0.1",
         "all 2 processes are running"});
  });
}

TEST(ProcessGroup, ReportsThatThePortIsInUse) {
  expect_ranks(1, [](const LaunchEnvironment& environment) {
    const auto first = connect(environment);
    expect_error<DistributedError>(
        [&] { connect(environment, std::chrono::seconds(1)); },
        {"could not connect", std::to_string(environment.master_port), "port"});
  });
}

}  // namespace
}  // namespace tern::process_group_test
