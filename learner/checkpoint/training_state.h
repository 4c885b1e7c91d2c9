#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tern/learner/checkpoint/checkpoint.h"
#include "tern/learner/learner.h"

/// Conversion between a Learner and its Checkpoint. Private to Tern.
namespace tern {

/// A part of a Learner's state that training changes.
struct StatePart {
  /// Prefix of its entries in a checkpoint: "callbacks/Ema 0", "random", or
  /// empty.
  std::string name;
  /// Returns the state, which may share memory with the Learner.
  std::function<StateDict()> capture;
  /// Restores what `capture` returned.
  /// \throws c10::ValueError, CheckpointError if it does not fit.
  std::function<void(const StateDict&)> restore;

  bool has_own_file() const { return name == "model" || name == "optimizer"; }
};

/// Returns all parts of a Learner's state, in the order in which they are
/// restored. Checkpoints, snapshots of dry runs and `resume` iterate over this
/// list.
std::vector<StatePart> state_parts(Learner& learner);

/// Restores weights, buffers and the optimizer.
/// \throws c10::ValueError, CheckpointError if they do not fit. The Learner is
///         then unchanged.
void apply_model(Learner& learner, const Checkpoint& checkpoint);
/// Restores the other parts.
/// \param with_trained  Also restore which parameters are trainable.
/// \throws the errors of the callbacks' load_state_dict.
void apply_training(
    Learner& learner,
    const Checkpoint& checkpoint,
    bool with_trained = true);
/// Restores which parameters were trainable when the checkpoint's fit began.
void restore_trained_at_begin(Learner& learner, const Checkpoint& checkpoint);

/// An entry with this prefix and a part's name means that the callback existed
/// and its state_dict was empty.
constexpr const char* kEmpty = "empty/";

/// Restores a part, including a part that was empty when it was saved and has
/// changed since.
void restore_part(const StatePart& part, const StateDict& state);

StateDict optimizer_state(Learner& learner);
void load_optimizer_state(Learner& learner, const StateDict& state);

/// Adds copies of the entries, in CPU memory, with the prefix "prefix/".
void put_under(
    StateDict& all,
    const std::string& prefix,
    const StateDict& state);

/// Returns the entries with the prefix "prefix/", without the prefix; all
/// entries if `prefix` is empty.
StateDict entries_under(const StateDict& all, const std::string& prefix);

/// Returns an integer of the state.
/// \throws c10::ValueError if it is missing.
int64_t saved_integer(const StateDict& state, const std::string& name);

}  // namespace tern
