#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/data/support/error_text.h"
#include "tern/learner/distributed/process_group.h"
#include "tern/tests/support/launch.h"

namespace tern::testing_support {

/// A counter in memory shared by the ranks; create it before them. Ranks use it
/// to wait for each other instead of for a time.
class SharedCount {
 public:
  SharedCount()
      : count_(new(::mmap(
            nullptr,
            sizeof(*count_),
            PROT_READ | PROT_WRITE,
            MAP_SHARED | MAP_ANONYMOUS,
            -1,
            0)) std::atomic<int64_t>(0)) {}
  ~SharedCount() { ::munmap(count_, sizeof(*count_)); }
  SharedCount(const SharedCount&) = delete;

  void add_one() { ++*count_; }
  /// Waits until the count is at least that; `run_ranks` ends a rank whose wait
  /// never ends.
  void wait_for(int64_t count) const {
    while (*count_ < count) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static_assert(std::atomic<int64_t>::is_always_lock_free);
  std::atomic<int64_t>* count_;
};

/// Runs `f` in `world_size` processes. Each may use EXPECT; an exception fails
/// the test. The test itself must not compute with tensors, because a child has
/// none of its parent's threads. \return the exit status of each: 0, 1 if it
/// failed, or minus the signal.
inline std::vector<int> run_ranks(
    int64_t world_size,
    const std::function<void(const LaunchEnvironment&)>& f) {
  LaunchEnvironment environment;
  environment.world_size = world_size;
  environment.master_port = free_port();
  std::vector<pid_t> children;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    environment.rank = environment.local_rank = rank;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    ::alarm(60);  // a rank that hangs fails
    at::set_num_threads(1);
    export_environment(environment);
    try {
      f(environment);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << message_of(error);
    }
    std::fflush(nullptr);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  std::vector<int> results;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    results.push_back(
        WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  return results;
}

/// Like `run_ranks`, but expects that all ranks succeed.
inline void expect_ranks(
    int64_t world_size,
    const std::function<void(const LaunchEnvironment&)>& f) {
  EXPECT_EQ(run_ranks(world_size, f), std::vector<int>(world_size, 0));
}

/// A process group of all ranks, for tests without a Learner.
inline std::shared_ptr<ProcessGroup> connect(
    const LaunchEnvironment& environment,
    std::chrono::milliseconds timeout = std::chrono::seconds(30)) {
  return ProcessGroup::connect(environment, {.timeout = timeout});
}

}  // namespace tern::testing_support
