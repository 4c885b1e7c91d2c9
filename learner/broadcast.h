#pragma once

#include <cstdint>
#include <string>

#include "tern/learner/communicator.h"
#include "tern/learner/state_dict.h"

/// Broadcasts of text and state. Private to Tern.
namespace tern {

/// Returns the text of rank `root`. Called by all ranks.
std::string
broadcast_text(Communicator& ranks, std::string text, int64_t root = 0);

/// Returns the state `mine` of rank `root`, in CPU memory. Names, dtypes and
/// shapes are sent too, so the other ranks do not need them. Called by all
/// ranks.
StateDict
broadcast_state(Communicator& ranks, const StateDict& mine, int64_t root = 0);

}  // namespace tern
