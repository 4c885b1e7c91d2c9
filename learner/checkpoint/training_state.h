#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"

/// Between a Learner and its Checkpoint. Private to Tern.
namespace tern {

/// A part of what training changes in a Learner.
struct StatePart {
  /// What its entries in a checkpoint begin with: "callbacks/Ema 0", "random",
  /// or nothing.
  std::string name;
  /// May share memory with the Learner.
  std::function<StateDict()> capture;
  /// Puts back what `capture` gave.
  /// \throws c10::ValueError, CheckpointError if it does not fit.
  std::function<void(const StateDict&)> restore;

  bool has_own_file() const { return name == "model" || name == "optimizer"; }
};

/// The one list of a Learner's state, in the order in which it is put back.
/// Checkpoints, the snapshots of trials and `resume` go over it.
std::vector<StatePart> state_parts(Learner& learner);

/// Weights, buffers and the optimizer.
/// \throws c10::ValueError if they do not fit; the Learner then is as it was.
void apply_model(Learner& learner, const Checkpoint& checkpoint);
/// The other parts. \throws as load_state_dict of the callbacks.
/// \param with_trained  Also which parameters are trained.
void apply_training(
    Learner& learner,
    const Checkpoint& checkpoint,
    bool with_trained = true);
/// Which parameters were trained when the checkpoint's fit began.
void restore_trained_at_begin(Learner& learner, const Checkpoint& checkpoint);

/// An entry of this name and a part's, in a checkpoint: that callback was there
/// and its state_dict was empty.
constexpr const char* kEmpty = "empty/";

/// Restores a part, also one that was empty and has changed since.
void restore_part(const StatePart& part, const StateDict& state);

StateDict optimizer_state(Learner& learner);
void load_optimizer_state(Learner& learner, const StateDict& state);

/// Adds copies of the entries, in CPU memory, under "prefix/".
void put_under(
    StateDict& all,
    const std::string& prefix,
    const StateDict& state);

/// What the entries under "prefix/" are without it; all of them under "".
StateDict entries_under(const StateDict& all, const std::string& prefix);

/// \throws c10::ValueError if the state has no such number.
int64_t saved_integer(const StateDict& state, const std::string& name);

}  // namespace tern
