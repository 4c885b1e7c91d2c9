#pragma once

// Sets what torchrun sets for its processes, for programs that fork.

#include <cstdint>
#include <cstdlib>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include "tern/learner/distributed/launch_environment.h"

namespace tern::testing_support {

/// A free port on the loopback device.
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

/// Sets torchrun's environment variables.
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

}  // namespace tern::testing_support
