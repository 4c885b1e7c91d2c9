#include "tern/learner/checkpoint/undo.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torch/serialize.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tern/learner/checkpoint/training_state.h"
#include "tern/learner/loop.h"

namespace tern {

namespace {

StateDict copies(const StateDict& state) {
  StateDict result;
  for (const auto& entry : state) {
    result.insert(entry.key(), entry.value().detach().clone());
  }
  return result;
}

// A copy of everything that training changes in a Learner, on the same devices.
struct Snapshot {
  // Set by each fit, so checkpoints do not need it.
  TrainState state;
  std::map<std::string, std::string> fit_settings;
  torch::Tensor trained_at_begin;
  int64_t passes;
  Callbacks callbacks;
  std::set<const Callback*> added_in_fits;
  bool has_optimizer;
  std::map<std::string, StateDict> parts = {};
  std::string optimizer_bytes = {};  // if it has no named state
};

Snapshot snapshot_of(Learner& learner) {
  const LearnerParts& l = parts_of(learner);
  Snapshot result{
      l.state,
      l.position.fit_settings,
      l.position.trained_at_begin,
      l.evaluation.passes,
      l.callbacks.all,
      l.callbacks.added_in_fits,
      l.optimizer != nullptr};
  for (const StatePart& part : state_parts(learner)) {
    if (part.name == "optimizer" && !result.has_optimizer) continue;
    try {
      result.parts[part.name] = copies(part.capture());
    } catch (const c10::NotImplementedError&) {
      // An optimizer that checkpoints do not support is saved with LibTorch's
      // serialization.
      if (part.name != "optimizer") throw;
      std::ostringstream bytes;
      torch::save(learner.optimizer(), bytes);
      result.optimizer_bytes = bytes.str();
    }
  }
  return result;
}

// Callbacks may have added and removed other callbacks during the dry run.
void restore_callbacks(Learner& learner, const Callbacks& before) {
  const auto is_in = [](const Callbacks& list, const CallbackHandle& callback) {
    return std::ranges::find(list, callback) != list.end();
  };
  for (const CallbackHandle& callback : Callbacks(learner.callbacks())) {
    if (!is_in(before, callback)) learner.remove(*callback);
  }
  for (const CallbackHandle& callback : before) {
    if (!is_in(learner.callbacks(), callback)) learner.add(callback);
  }
  parts_of(learner).callbacks.all = before;  // restores the order of equals
}

// A forward pass that creates layers ends a dry run with an error, but the
// layers stay in the model. Adds their tensors to the saved `state`.
// \return true if there are any.
bool add_new_tensors(Learner& learner, StateDict& state) {
  bool has_some = false;
  for (const auto& entry : learner.state_dict()) {
    if (state.contains(entry.key())) continue;
    state.insert(entry.key(), entry.value());
    has_some = true;
  }
  return has_some;
}

void restore(Learner& learner, Snapshot& before) {
  restore_callbacks(learner, before.callbacks);
  parts_of(learner).callbacks.added_in_fits = before.added_in_fits;
  const torch::NoGradGuard no_grad;
  LearnerParts& l = parts_of(learner);
  if (!before.has_optimizer) {
    l.optimizer.reset();
  } else if (!before.optimizer_bytes.empty()) {
    std::istringstream bytes(before.optimizer_bytes);
    // Loading does not clear state that was not saved.
    learner.optimizer().state().clear();
    torch::load(learner.optimizer(), bytes);
  }
  const bool has_new = add_new_tensors(learner, before.parts["model"]);
  bool is_invalidated = false;
  for (const StatePart& part : state_parts(learner)) {
    // Sent before callbacks restore state that is derived from the weights.
    if (!part.has_own_file() && !std::exchange(is_invalidated, true)) {
      loop::invalidate_derived_state(l);
    }
    const auto saved = before.parts.find(part.name);
    if (saved == before.parts.end()) continue;
    if (part.name == "trained" && has_new) continue;
    restore_part(part, saved->second);
  }
  const FitResult result = l.state.result;
  l.state = before.state;
  // A stop also applies to the rest of the program, not only to the dry run.
  if (result == FitResult::interrupted) l.state.result = result;
  l.position.first_batch = 0;
  l.position.fit_settings = before.fit_settings;
  l.position.trained_at_begin = before.trained_at_begin;
  l.evaluation.passes = before.passes;
}

}  // namespace

void undo(Learner& learn, const std::function<void()>& body) {
  // Removed from the Learner during the dry run, because it applies only to
  // real fits.
  auto& continuation = parts_of(learn).position.continuation;
  const auto put_back = c10::make_scope_exit(
      [&continuation, kept = std::move(continuation)]() mutable {
        if (kept) continuation = std::move(kept);
      });
  Snapshot before = snapshot_of(learn);
  try {
    body();
  } catch (...) {
    restore(learn, before);
    throw;
  }
  restore(learn, before);
}

}  // namespace tern
