#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"

/// Between a Learner and its Checkpoint. Private to Tern.
namespace tern {

/// A part of what training changes in a Learner.
struct StatePart {
  /// What its entries in a checkpoint begin with: "callbacks/Ema 0", "random",
  /// or nothing. "model" and "optimizer" have files of their own.
  std::string name;
  /// May share memory with the Learner.
  std::function<StateDict()> capture;
  /// Puts back what `capture` gave. \throws c10::ValueError, CheckpointError if
  /// it does not fit.
  std::function<void(const StateDict&)> restore;
};

/// The one list of a Learner's state, in the order in which it is put back.
/// Checkpoints, the snapshots of trials and `resume` go over it.
std::vector<StatePart> state_parts(Learner& learner);

/// Copies everything to the CPU; nothing of it changes with the Learner.
Checkpoint capture_state(Learner& learner);

/// Weights, buffers and the optimizer. \throws c10::ValueError if they do not
/// fit; the Learner then is as it was.
void apply_model(Learner& learner, const Checkpoint& checkpoint);
/// The other parts. \throws as load_state_dict of the callbacks.
void apply_training(Learner& learner, const Checkpoint& checkpoint);

StateDict optimizer_state(Learner& learner);
void load_optimizer_state(Learner& learner, const StateDict& state);

/// Where a fit was.
struct SavedProgress {
  int64_t epoch = 0, batch = 0;  // to be made next
  bool stopped = false;          // a callback had seen enough
};
SavedProgress saved_progress(const Checkpoint& checkpoint);

/// Callbacks that only the checkpoint or only the Learner has, as sentences.
std::vector<std::string> callback_differences(
    Learner& learner,
    const Checkpoint& checkpoint);

/// What the callbacks' `log_state` gave; that of one of them, once.
StateDict saved_logs(const Checkpoint& checkpoint);
std::optional<StateDict> take_saved_log(
    Learner& learner,
    const Callback& callback);

}  // namespace tern
