#pragma once

#include <cstdint>
#include <string>

namespace tern {

/// Which of several processes this is, as torchrun (or Slurm with its variables
/// exported so) tells it through the environment.
struct LaunchEnvironment {
  int64_t rank = 0;        // RANK: over all machines
  int64_t world_size = 1;  // WORLD_SIZE
  int64_t local_rank = 0;  // LOCAL_RANK: on this machine; its GPU
  std::string master_address = "127.0.0.1";  // MASTER_ADDR
  uint16_t master_port = 29500;              // MASTER_PORT
  /// TORCHELASTIC_RUN_ID and how often it was restarted: keys of one attempt
  /// do not meet those of another in a store that outlives them.
  std::string run = "none";
  int64_t restarts = 0;
  /// TORCHELASTIC_USE_AGENT_STORE: the launcher hosts the store, rank 0 too
  /// is a client.
  bool has_agent_store = false;

  bool is_distributed() const { return world_size > 1; }

  /// World size 1 when none of the variables is set.
  /// \throws c10::ValueError naming the variable, when one of RANK, WORLD_SIZE,
  ///         LOCAL_RANK, MASTER_ADDR, MASTER_PORT is missing beside the
  ///         others, is no number or contradicts another.
  static LaunchEnvironment read();
};

}  // namespace tern
