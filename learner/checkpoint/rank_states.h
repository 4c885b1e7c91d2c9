#pragma once

#include <optional>
#include <string>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"

/// State that differs between the ranks of a run: the losses of their batches,
/// the counts of their callbacks, their random numbers. A checkpoint contains
/// the state of rank 0 and, under "ranks/1/...", the differences of the other
/// ranks. Private to Tern.
namespace tern {

/// Adds the differences of the other ranks to the checkpoint of rank 0. Called
/// by all ranks; the `checkpoint` of the other ranks is ignored.
void gather_rank_states(Learner& learner, Checkpoint& checkpoint);

/// Returns the state of a part, such as "callbacks/Recorder 0", for the calling
/// rank; unset if the checkpoint does not contain the part.
std::optional<StateDict> saved_part(
    const Learner& learner,
    const Checkpoint& checkpoint,
    const std::string& part);

}  // namespace tern
