#pragma once

#include <cstdint>

#include "tern/learner/distributed/process_group.h"
#include "tern/learner/state_dict.h"

namespace tern {

/// What rank `root` gives as `mine`: names, types, shapes and values, for ranks
/// that do not know them; there in CPU memory. Made by all ranks.
/// \throws DistributedError as ProcessGroup does.
StateDict
broadcast_state(ProcessGroup& group, const StateDict& mine, int64_t root = 0);

}  // namespace tern
