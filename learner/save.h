#pragma once

#include "tern/learner/state_dict.h"

namespace tern {

/// How `Learner::load` reads what `Learner::save` wrote.
struct LoadModelOptions {
  /// Which names may differ; for a new head `{.strict = false, .skip_mis_shaped
  /// = true}`.
  LoadOptions weights = {};
  /// Take up the optimizer's moments, rates and steps too. Without it the
  /// optimizer begins anew.
  bool with_optimizer = true;
};

}  // namespace tern
