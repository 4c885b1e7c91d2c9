#pragma once

#include <cstdint>
#include <string>

namespace tern {

/// Identifies this process among several, as set in the environment by torchrun
/// (or by Slurm, if its variables are exported under these names).
struct LaunchEnvironment {
  int64_t rank = 0;        // RANK: over all machines
  int64_t world_size = 1;  // WORLD_SIZE
  int64_t local_rank = 0;  // LOCAL_RANK: on this machine; also the GPU's index
  std::string master_address = "127.0.0.1";  // MASTER_ADDR
  uint16_t master_port = 29500;              // MASTER_PORT
  /// TORCHELASTIC_RUN_ID and the number of restarts. They are part of the
  /// store's keys, so that keys of different attempts do not collide in a store
  /// that outlives them.
  std::string run = "none";
  int64_t restarts = 0;
  /// TORCHELASTIC_USE_AGENT_STORE: the launcher hosts the store, and rank 0 is
  /// a client too.
  bool has_agent_store = false;

  bool is_distributed() const { return world_size > 1; }

  /// Reads the environment. Returns world size 1 if none of the variables is
  /// set.
  /// \throws c10::ValueError naming the variable if only some of RANK,
  ///         WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are set, or if
  ///         a value is not a number or contradicts another value.
  static LaunchEnvironment read();
};

}  // namespace tern
