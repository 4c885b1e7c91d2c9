// Simulates two machines with network namespaces and cuts the connection
// between them: both notice within the timeout, unless it is restored before.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "tern/callbacks/distributed.h"
#include "tern/tests/support/own_time.h"
#include "tern/tests/support/ranks.h"
#include "tern/tests/support/tests_folder.h"
#include "tern/tests/support/tiny.h"

namespace tern::distributed_network_test {
namespace {

using namespace testing_support;  // NOLINT: in a test
using Clock = std::chrono::steady_clock;

class Network {
 public:
  explicit Network(int64_t machines)
      : name_(fmt::format("t{}n", ::getpid() % 100000)),
        is_up_(run(fmt::format("up {} {}", name_, machines))) {}
  ~Network() { run(fmt::format("down {}", name_)); }
  Network(const Network&) = delete;

  bool is_up() const { return is_up_; }
  void cut_off(int64_t machine) const {
    EXPECT_TRUE(run(fmt::format("link {} {} down", name_, machine)));
  }
  void mend(int64_t machine) const {
    EXPECT_TRUE(run(fmt::format("link {} {} up", name_, machine)));
  }
  /// Moves this process to that machine.
  void enter(int64_t machine) const {
    const auto path = fmt::format("/var/run/netns/{}{}", name_, machine);
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(::setns(fd, CLONE_NEWNET), 0) << path;
    ::close(fd);
  }

 private:
  static bool run(const std::string& command) {
    const auto line = fmt::format(
        "{}/support/network.sh {} >/dev/null 2>&1",
        kTestsFolder,
        command);
    return std::system(line.c_str()) == 0;
  }

  std::string name_;
  bool is_up_;
};

constexpr int kTooLate = 3;  // exit code of a rank that noticed too late

// Moves this rank to its machine.
void enter(const Network& network, LaunchEnvironment environment) {
  network.enter(environment.rank);
  environment.master_address = "10.77.0.1";
  export_environment(environment);
  ::setenv("GLOO_SOCKET_IFNAME", "eth0", 1);
}

Learner point_learner() {
  return {
      point_data(256, 100, {.batch_size = 16, .workers = 0}),
      point_net(),
      quiet()};
}

// Trains on two machines and cuts the connection of one after 20 steps.
std::vector<int> train_and_cut(const Network& network) {
  constexpr std::chrono::seconds kTimeout(5);
  return run_ranks(2, [&](const LaunchEnvironment& environment) {
    enter(network, environment);
    Learner learn = point_learner();
    learn.to_distributed({.group = {.timeout = kTimeout}});
    const OwnTime time;
    double last_step = 0;
    learn.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
      last_step = time.seconds();
      if (l.state().training && l.state().iteration == 20 &&
          communicator(l).is_main_process()) {
        network.cut_off(1);
      }
    }});
    EXPECT_THROW(learn.fit(100000, 1e-2), DistributedError);
    EXPECT_GE(learn.state().iteration, 20);
    EXPECT_FALSE(learn.state().is_fitting);
    const auto most = std::chrono::duration<double>(kTimeout) * 1.1;
    if (time.seconds() - last_step > most.count()) ::_exit(kTooLate);
  });
}

TEST(Network, ACutConnectionIsNoticedOnBothSidesWithinTheTimeout) {
  // A machine under load may stall for seconds, so there are three attempts.
  std::vector<int> ends = {kTooLate};
  for (int i = 0; i < 3 && std::count(ends.begin(), ends.end(), kTooLate);
       ++i) {
    const Network network(2);
    if (!network.is_up()) {
      GTEST_SKIP() << "No network namespaces: that needs root and iproute2.";
    }
    ends = train_and_cut(network);
  }
  EXPECT_EQ(ends, (std::vector<int>{0, 0}));
}

TEST(Network, AConnectionRestoredBeforeTheTimeoutOnlyCostsTime) {
  const Network network(2);
  if (!network.is_up()) {
    GTEST_SKIP() << "No network namespaces: that needs root and iproute2.";
  }
  expect_ranks(2, [&](const LaunchEnvironment& environment) {
    enter(network, environment);
    Learner learn = point_learner();
    learn.to_distributed({.group = {.timeout = std::chrono::seconds(50)}});
    std::thread mends;
    learn.add<LambdaCallback>({.on_batch_end = [&](Learner& l) {
      if (!l.state().training || l.state().iteration != 20) return;
      if (!communicator(l).is_main_process()) return;
      network.cut_off(1);
      mends = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        network.mend(1);
      });
    }});
    const auto begin = Clock::now();
    learn.fit(10, 1e-2);
    if (mends.joinable()) mends.join();
    EXPECT_GE(Clock::now() - begin, std::chrono::seconds(1));
    EXPECT_EQ(learn.state().iteration, 80);
  });
}

}  // namespace
}  // namespace tern::distributed_network_test
