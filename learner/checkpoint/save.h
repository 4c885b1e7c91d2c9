#pragma once

#include <optional>
#include <string>

#include <torch/types.h>

#include "tern/learner/state_dict.h"

namespace tern {

class Learner;

/// How `Learner::load` reads what `Learner::save` wrote.
struct LoadModelOptions {
  /// Which names may differ; for a new head `{.strict = false,
  /// .ignore_mismatched_sizes = true}`.
  LoadOptions weights = {};
  /// Load the optimizer's moments, rates and steps too. Without it the
  /// optimizer starts with a new state.
  bool with_optimizer = true;
};

/// A callback that saves models under names of its own, as SaveModel does.
/// `Learner::load` asks it, so that a file of an earlier training does not pass
/// for one of this.
class SavesModels {
 public:
  virtual ~SavesModels() = default;
  /// Whether this callback has saved a model as `name` since its fit began.
  /// Nothing if it does not write this name.
  virtual std::optional<bool> has_saved(const std::string& name) const = 0;
  /// Why it has saved none; empty while there was no fit.
  virtual std::string why_unsaved(const std::string& name) const = 0;
};

/// Whether what `Learner::save` wrote under the name is of this training: its
/// run is the Learner's, over all continuations.
bool is_saved_by_run(Learner& learn, const std::string& name);

/// Removes what `Learner::save` wrote under the name, if it is there.
void remove_saved(const Learner& learn, const std::string& name);

}  // namespace tern
