#pragma once

#include <optional>
#include <string>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"

/// What the ranks of a training do not have in common: the losses of their own
/// batches, what their callbacks count, their random numbers. A checkpoint holds
/// rank 0's state, and what another rank's differs in under "ranks/1/...".
/// Private to Tern.
namespace tern {

/// Adds what the other ranks differ in to the checkpoint of rank 0. Called by
/// all ranks, whose `checkpoint` is not looked at.
void gather_rank_states(Learner& learner, Checkpoint& checkpoint);

/// What the checkpoint holds of a part, such as "callbacks/Recorder 0", for the
/// rank that asks; nothing if it does not know the part.
std::optional<StateDict> saved_part(
    const Learner& learner,
    const Checkpoint& checkpoint,
    const std::string& part);

}  // namespace tern
