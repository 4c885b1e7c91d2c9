#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

/// Fits done and steps: a moment of a training.
using TrainingMoment = std::pair<int64_t, int64_t>;

/// Models that this training saved after the checkpoint that it goes on from are
/// of a branch that it has left. Each makes room for the one that the name had
/// at the checkpoint, or for none: it is put aside as "<name>.replaced" until
/// the name is saved again.
/// \return the files that were put aside.
std::vector<std::string> take_back_later_models(
    Learner& learn,
    const TrainingMoment& checkpoint);

/// Removes what is kept for `take_back_later_models` of the name if the last
/// checkpoint came after it was saved.
void remove_earlier_model(Learner& learn, const std::string& name);

}  // namespace tern
