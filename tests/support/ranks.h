#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>
#include <torch/utils.h>

#include "tern/data/error_text.h"
#include "tern/learner/distributed/launch_environment.h"

namespace tern::testing_support {

/// A port of the loopback device that nobody listened to just now.
inline uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return ntohs(address.sin_port);
}

/// What torchrun would have set.
inline void export_environment(const LaunchEnvironment& environment) {
  const auto set = [](const char* name, const std::string& value) {
    ::setenv(name, value.c_str(), /*overwrite=*/1);
  };
  set("RANK", std::to_string(environment.rank));
  set("LOCAL_RANK", std::to_string(environment.local_rank));
  set("WORLD_SIZE", std::to_string(environment.world_size));
  set("MASTER_ADDR", environment.master_address);
  set("MASTER_PORT", std::to_string(environment.master_port));
}

/// Runs `f` in `world_size` processes of their own. Each may use EXPECT; what
/// it throws fails the test. The test itself must not compute with tensors: a
/// child has none of its parent's threads.
/// \return how each ended: 0, 1 when it failed, or minus the signal.
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

/// The same; all of them must end well.
inline void expect_ranks(
    int64_t world_size,
    const std::function<void(const LaunchEnvironment&)>& f) {
  EXPECT_EQ(run_ranks(world_size, f), std::vector<int>(world_size, 0));
}

}  // namespace tern::testing_support
