#pragma once

#include <cstdint>
#include <string>

#include "tern/learner/communicator.h"
#include "tern/learner/state_dict.h"

/// What one rank has, on all of them. Private to Tern.
namespace tern {

/// The text that rank `root` gave. Called by all ranks.
std::string
broadcast_text(Communicator& ranks, std::string text, int64_t root = 0);

/// What rank `root` gave as `mine`: names, types, shapes and values, for ranks
/// that do not know them; there in CPU memory. Called by all ranks.
StateDict
broadcast_state(Communicator& ranks, const StateDict& mine, int64_t root = 0);

}  // namespace tern
