#pragma once

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

/// Whether what `Learner::save` wrote under the name is of this training: its
/// run is the Learner's, over all continuations.
bool is_saved_by_run(Learner& learn, const std::string& name);

/// Removes what `Learner::save` wrote under the name, if it is there.
void remove_saved(const Learner& learn, const std::string& name);

}  // namespace tern
